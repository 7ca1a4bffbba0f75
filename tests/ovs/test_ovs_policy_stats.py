"""What a real switch counted of real packets is what an agent reports of its policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from counted_traffic import V4, V6, Reported, receive
from policy_oracle import LOCAL, OnePolicy, OneRule, Packet, ports, told
from policy_switch import CONFIG, FEATURES, GATEWAY, NODE, PEER, PIPELINE, TUNNEL

from antrea.apis.stats import TrafficStats
from antrea.engine import Engine, Facts
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.network_policy.agent.statistics import COUNTED
from tests.unit.features.policy_world import interface

if TYPE_CHECKING:
    from pathlib import Path

    from ovs_bridge import OvsBridge

A, B, C, _ = LOCAL
ALLOWED = OneRule("In", (frozenset({B.name}),), (), (("UDP", 53, 0),), everybody=False)
DROPPED = OneRule("In", (frozenset({C.name}),), (), (), everybody=False, action="Drop")
REJECTED = OneRule(
    "Out", (frozenset({A.name}),), (), (("UDP", 80, 0),), everybody=False, action="Reject", logged=True
)
POLICIES = {
    "allow": OnePolicy(frozenset({A.name}), (ALLOWED,)),
    "same": OnePolicy(frozenset({A.name}), (ALLOWED,)),
    "deny": OnePolicy(frozenset({A.name}), (DROPPED,), 50, 1.0),
    "reject": OnePolicy(frozenset({B.name}), (REJECTED,), 50, 1.0),
}


@pytest.fixture
def engine(ovs: OvsBridge) -> Engine:
    ovs.add_ports(ports())
    facts = Facts()
    for pool, low, high in POLICY.ranks:
        facts.ids.between(pool, low, high)
    node = (CONFIG, NODE, PEER, GATEWAY, TUNNEL, RealizedPipeline(PIPELINE))
    pods = (interface(pod.name, pod.number, *pod.ips) for pod in LOCAL)
    rows = (row for name, one in POLICIES.items() for row in told(name, one))
    for row in (*node, *pods, *rows):
        facts.put(row)
    found = Engine(facts, [unit for feature in FEATURES for unit in feature.units])
    found.plan()
    ovs.clear()
    ovs.install(found.standing().values(), PIPELINE)
    return found


def send(ovs: OvsBridge, packet: Packet, times: int, source_port: int = 5353) -> None:
    pair = packet[:2]
    macs = "0a:00:00:00:00:{:02x} 0a:00:00:00:00:{:02x}".format(*(pod.number for pod in pair)).split()
    ips = pair[0].ips[packet.v6], pair[1].ips[packet.v6]
    for _ in range(times):
        receive(ovs, packet.source.name, (macs[0], macs[1]), ips, src=source_port, dst=packet.port)


async def test_packets_are_counted_once_and_through_a_replay_of_all_flows(
    ovs: OvsBridge, engine: Engine, tmp_path: Path
) -> None:
    reported, keep = Reported(ovs, engine, PIPELINE, COUNTED), tmp_path / "counters"
    assert await reported.sums(keep) == {}
    # the first packet, the answer, and two more
    send(ovs, Packet(B, A, False, "UDP", 53), 1)
    send(ovs, Packet(A, B, False, "UDP", 5353), 1, source_port=53)
    send(ovs, Packet(B, A, False, "UDP", 53), 2)
    send(ovs, Packet(C, A, False, "UDP", 53), 2)
    send(ovs, Packet(B, A, True, "UDP", 80), 4)
    wanted = {
        "allow": TrafficStats(packets=4, bytes=4 * V4, sessions=1),
        "same": TrafficStats(packets=4, bytes=4 * V4, sessions=1),
        "deny": TrafficStats(packets=2, bytes=2 * V4, sessions=2),
        "reject": TrafficStats(packets=4, bytes=4 * V6, sessions=4),
    }
    assert await reported.sums(keep) == wanted
    reported.replace_all()
    assert await reported.sums(keep) == wanted
    send(ovs, Packet(B, A, False, "UDP", 53), 1)
    wanted["allow"] = wanted["same"] = TrafficStats(packets=5, bytes=5 * V4, sessions=1)
    assert await reported.sums(keep) == wanted
