"""More rules than one flow can name: those that stand go on, the rest stays closed, and the limit is said."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from policy_oracle import LOCAL, Packet, entry, ports, sent_to

from antrea.agent.id_floor import keep_clear
from antrea.engine import Engine, Facts
from antrea.engine.pace import Pace
from antrea.errors import Refused
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.feature import Realised
from antrea.features.network_policy.agent import FEATURE as POLICY
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.ofctl import ACTIONS, FlowSink
from antrea.outside.ofctl_meters import MeterSink
from antrea.outside.ofctl_run import Ofctl
from benchmarks.policy_switch import CONFIG, GATEWAY, NODE, PIPELINE
from tests.unit.features.policy_world import ANY, applied, interface, policy, port, rule

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

    from antrea.engine import Sink
    from antrea.features.network_policy.sent import SentPolicy

V4 = ThisNode("n1", NODE.pod_cidrs[:1], NODE.node_ips, NODE.transport_ips)
SENDER, POD = LOCAL[0], LOCAL[1]


def one(number: int) -> SentPolicy:
    return policy(f"policy-{number}", "all", rule("In", ANY, port(number)))


async def test_a_rule_too_many_stays_closed_and_says_so(ovs: OvsBridge) -> None:
    for name, number in ports().items():
        ovs.add_port(name, number)
    facts = Facts()
    pods = [interface(pod.name, pod.number, *pod.ips) for pod in (SENDER, POD)]
    for row in (CONFIG, V4, GATEWAY, Realised(PIPELINE), *pods, *applied("all", POD.told)):
        facts.put(row)
    for number in range(1, ACTIONS + 1):
        facts.put(one(number))
    ofctl = Ofctl(ovs.process.directory / "br-int.mgmt")
    sinks: dict[type, Sink] = dict.fromkeys((Flow, Group), FlowSink(ofctl, PIPELINE, 1))
    sinks[Meter] = MeterSink(ofctl)
    engine = Engine(facts, (*POD_CONNECTIVITY.units, *POLICY.units), sinks, pace=Pace(first=0.02))

    def reached(number: int) -> bool:
        return sent_to(ovs, entry(Packet(SENDER, POD, v6=False, protocol="TCP", port=number))) == POD.number

    running = asyncio.create_task(engine.run())
    try:
        await asyncio.wait_for(engine.settled(PodInterface, pods[1].key), 60)
        await asyncio.wait_for(engine.quiet(), 60)
        assert [reached(1), reached(ACTIONS), reached(ACTIONS + 1)] == [True, True, False]
        facts.put(one(ACTIONS + 1))
        with pytest.raises(
            Refused, match=f"{ACTIONS + 1} actions do not fit an OpenFlow message, which holds {ACTIONS}"
        ):
            await asyncio.wait_for(engine.settled(PodInterface, pods[1].key), 20)
        assert [reached(1), reached(ACTIONS), reached(ACTIONS + 1)] == [True, True, False]
        facts.drop(type(one(1)), "policy-1")
        deadline = time.monotonic() + 30
        while not reached(ACTIONS + 1):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        assert not reached(1)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_without_a_journal_numbers_begin_above_those_that_stand(ovs: OvsBridge) -> None:
    ovs.clear()
    ovs.add_flows(
        ["table=9,conj_id=7,ip actions=drop", "table=9,ip actions=conjunction(12,1/2),conjunction(3,1/2)"]
    )
    facts = Facts()
    await keep_clear(facts, Ofctl(ovs.process.directory / "br-int.mgmt"))
    assert facts.id("conjunction", "new") == 12  # which flows carry as 13
    facts.ids.swept()
    assert facts.id("conjunction", "newer") == 1
