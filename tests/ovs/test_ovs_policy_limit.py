"""More rules for one Pod than one flow can name; numbers of rules where the journal is missing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from policy_oracle import LOCAL, Packet, entry, ports, sent_to
from policy_switch import CONFIG, GATEWAY, NODE, PIPELINE

from antrea.agent.switch.id_recovery import reserve_used_ids
from antrea.engine import Engine, Facts
from antrea.engine.pace import Pace
from antrea.facts.node import ThisNode
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.host.route import RoutingRule
from antrea.openflow.action import CONJUNCTIONS
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl
from tests.unit.features.policy_world import ANY, applied, interface, policy, port, rule

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

    from antrea.engine import Sink

V4 = ThisNode("n1", NODE.pod_cidrs[:1], NODE.node_ips, NODE.transport_ips)
SENDER, POD = LOCAL[0], LOCAL[1]


def one(number: int) -> SentPolicy:
    return policy(f"policy-{number}", "all", rule("In", ANY, port(number)))


async def test_a_pod_has_more_rules_than_fit_one_flow(ovs: OvsBridge) -> None:
    ovs.add_ports(ports())
    facts = Facts()
    pods = [interface(pod.name, pod.number, *pod.ips) for pod in (SENDER, POD)]
    for row in (CONFIG, V4, GATEWAY, RealizedPipeline(PIPELINE), *pods, *applied("all", POD.told)):
        facts.put(row)
    last = CONJUNCTIONS + 20
    for number in range(1, last + 1):
        facts.put(one(number))
    ofctl = Ofctl(ovs.process.directory / "br-int.mgmt")
    sinks: dict[type, Sink] = dict.fromkeys((Flow, Group), FlowSink(ofctl, PIPELINE, 1))
    sinks[Meter] = MeterSink(ofctl)
    engine = Engine(facts, (*POD_CONNECTIVITY.units, *POLICY.units), sinks, pace=Pace(first=0.02))

    def reached(*numbers: int) -> list[bool]:
        return [
            sent_to(ovs, entry(Packet(SENDER, POD, v6=False, protocol="TCP", port=number))) == POD.number
            for number in numbers
        ]

    running = asyncio.create_task(engine.run())
    try:
        await asyncio.wait_for(engine.quiet(), 120)
        assert not engine.unrealized()
        assert reached(1, CONJUNCTIONS - 2, CONJUNCTIONS - 1, last, last + 1) == [True] * 4 + [False]
        for number in (1, CONJUNCTIONS - 2, last):
            facts.drop(SentPolicy, f"policy-{number}")
        await asyncio.wait_for(engine.quiet(), 60)
        assert reached(1, 2, CONJUNCTIONS - 2, CONJUNCTIONS - 1, last) == [False, True, False, True, False]
        assert not engine.errors.counts
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_without_a_journal_numbers_begin_above_those_that_stand(ovs: OvsBridge) -> None:
    ovs.clear()
    ovs.add_flows(
        [
            "table=9,conj_id=7,ip actions=drop",
            "table=9,ip actions=conjunction(12,1/2),conjunction(3,1/2)",
            "table=9,priority=2,reg11=0x80000005 actions=conjunction(3,1/2)",
            "table=9,priority=4,in_port=4 actions=set_field:0x7/0xff->pkt_mark,resubmit(,10)",
            "table=9,priority=4,in_port=5 actions=set_field:02:e9:00:00:00:1f->eth_src,resubmit(,10)",
            "table=9,priority=5,ip,pkt_mark=0x80000000/0x80000000 actions=drop",
            "table=9,priority=3,ip,reg11=0/0x80000000,nw_src=10.0.0.1 actions=load:0x80000005->NXM_NX_REG11[]",
        ]
    )
    facts = Facts()
    rules = [RoutingRule(family=4, mark=0x21, mask=0xFF, table=104, priority=100)]
    await reserve_used_ids(facts, Ofctl(ovs.process.directory / "br-int.mgmt"))
    assert facts.id("egress-mark", "10.0.0.1") == 0x20
    await reserve_used_ids(facts, Ofctl(ovs.process.directory / "br-int.mgmt"), rules)
    assert facts.id("egress-mark", "10.0.0.2") == 0x22
    assert facts.id("egress-table", "10.0.0.0/24") == 5
    assert facts.id("conjunction", "new") == 12  # which flows carry as 13
    assert facts.id("peer-class", "new") == 6
    facts.ids.swept()
    assert facts.id("conjunction", "newer") == 1
