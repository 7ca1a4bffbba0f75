"""What audited policies would deny of real packets gets there, and is counted as an enforced rule counts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from counted_traffic import V4, V6, Reported, receive
from policy_oracle import LOCAL, OnePolicy, OneRule, ports, told
from policy_switch import CONFIG, FEATURES, GATEWAY, NODE, PEER, PIPELINE, TUNNEL

from antrea.apis.annotation import AUDIT, ENFORCEMENT
from antrea.apis.stats import TrafficStats
from antrea.engine import Engine, Facts
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.statistics import COUNTED
from tests.unit.features.policy_world import interface

if TYPE_CHECKING:
    from pathlib import Path

    from ovs_bridge import OvsBridge

A, B, C, _ = LOCAL
ALLOWED = OneRule("In", (frozenset({B.name}),), (), (), everybody=False)
DROPPED = OneRule("In", (frozenset({C.name}),), (), (("UDP", 80, 0),), everybody=False, action="Drop")
POLICIES = {
    "isolates": OnePolicy(frozenset({A.name}), (ALLOWED,)),
    "denies": OnePolicy(frozenset({A.name}), (DROPPED,), 50, 1.0),
}


def engine_of(*, audit: bool) -> Engine:
    facts = Facts()
    for pool, low, high in POLICY.ranks:
        facts.ids.between(pool, low, high)
    pods = (interface(pod.name, pod.number, *pod.ips) for pod in LOCAL)
    for row in (CONFIG, NODE, PEER, GATEWAY, TUNNEL, RealizedPipeline(PIPELINE), *pods):
        facts.put(row)
    for row in (row for name, one in POLICIES.items() for row in told(name, one)):
        if isinstance(row, SentPolicy) and audit:
            notes = {ENFORCEMENT: AUDIT}
            meta = msgspec.structs.replace(row.policy.metadata, annotations=notes)
            row = SentPolicy(msgspec.structs.replace(row.policy, metadata=meta))
        facts.put(row)
    found = Engine(facts, [unit for feature in FEATURES for unit in feature.units])
    found.plan()
    return found


def sent(ovs: OvsBridge) -> int:
    """Packets that the Pod has been sent."""
    text = ovs.ofctl("dump-ports", str(A.number))
    return int(re.findall(r"tx pkts=(\d+)", text)[0])


def send(ovs: OvsBridge) -> int:
    """From both Pods in both families, three times; how many arrive."""
    before = sent(ovs)
    for v6 in (False, True):
        for source, port in ((B, 53), (C, 53), (C, 80)):
            mac = f"0a:00:00:00:00:{source.number:02x}", f"0a:00:00:00:00:{A.number:02x}"
            for _ in range(3):
                receive(ovs, source.name, mac, (source.ips[v6], A.ips[v6]), src=5353, dst=port)
    return sent(ovs) - before


async def test_what_audited_policies_would_deny_gets_there_and_is_counted(
    ovs: OvsBridge, tmp_path: Path
) -> None:
    ovs.add_ports(ports())
    arrived, counted = {}, {}
    for audit in (True, False):
        engine = engine_of(audit=audit)
        ovs.clear()
        ovs.install(engine.standing().values(), PIPELINE)
        ovs.appctl("dpctl/flush-conntrack")
        ovs.appctl("revalidator/wait")
        reported = Reported(ovs, engine, PIPELINE, COUNTED)
        assert await reported.sums(tmp_path / f"counters {audit}") == {}
        arrived[audit] = send(ovs)
        counted[audit] = await reported.sums(tmp_path / f"counters {audit}")
    assert arrived == {True: 18, False: 6}
    denied = TrafficStats(packets=6, bytes=3 * (V4 + V6), sessions=6)
    # what isolates a Pod is no rule's when enforced, and is each audited policy's
    assert counted[True] == {"isolates": denied, "denies": denied}
    assert counted[False]["denies"] == denied
