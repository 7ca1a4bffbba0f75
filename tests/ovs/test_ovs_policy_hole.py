"""Exceptions from blocks on a real switch."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from policy_oracle import LOCAL, OUTSIDE, Packet, entry, ports, sent_to
from policy_switch import CONFIG, GATEWAY, NODE, PIPELINE

from antrea.engine import Engine, Facts
from antrea.engine.pace import Pace
from antrea.facts.node import ThisNode
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.network_policy.hole import MAX_EXCEPTIONS
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl
from tests.unit.features.policy_world import applied, block, interface, peer, policy, port, rule

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

    from antrea.engine import Sink

V4 = ThisNode("n1", NODE.pod_cidrs[:1], NODE.node_ips, NODE.transport_ips)
POD = LOCAL[1]


async def test_exceptions_by_the_hundred_are_closed_one_by_one_and_too_many_as_a_whole(
    ovs: OvsBridge,
) -> None:
    ovs.add_ports(ports())
    facts, pod = Facts(), interface(POD.name, POD.number, *POD.ips)
    scattered = [str(IPv4Address((number << 22) + 1)) for number in range(600)]

    def state(*holes: str) -> None:
        facts.put(policy("p", "all", rule("In", peer(blocks=[block("0.0.0.0/0", *holes)]), port(80))))

    def reached() -> list[bool]:
        return [
            sent_to(ovs, entry(Packet(one, POD, v6=False, protocol="TCP", port=80))) == POD.number
            for one in OUTSIDE
        ]

    for row in (CONFIG, V4, GATEWAY, RealizedPipeline(PIPELINE), pod, *applied("all", POD.told)):
        facts.put(row)
    state(*scattered, OUTSIDE[0].ips[0])
    ofctl = Ofctl(ovs.process.directory / "br-int.mgmt")
    sinks: dict[type, Sink] = dict.fromkeys((Flow, Group), FlowSink(ofctl, PIPELINE, 1))
    sinks[Meter] = MeterSink(ofctl)
    engine = Engine(facts, (*POD_CONNECTIVITY.units, *POLICY.units), sinks, pace=Pace(first=0.02))
    running = asyncio.create_task(engine.run())
    try:
        await asyncio.wait_for(engine.quiet(), 120)
        assert reached() == [False, True]
        state(*scattered, *(str(IPv4Address((number << 20) + 3)) for number in range(MAX_EXCEPTIONS)))
        await asyncio.wait_for(engine.quiet(), 120)
        assert reached() == [False, False]
        assert not engine.errors.counts
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
