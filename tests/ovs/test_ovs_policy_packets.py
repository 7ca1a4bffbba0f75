"""What rules need to send packets to the agent is back after the switch was killed, in the order that it wants."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ovs_process import listens, until
from policy_oracle import LOCAL
from policy_switch import CONFIG, GATEWAY, NODE, PIPELINE

from antrea.engine import Engine, Facts
from antrea.engine.pace import Pace
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl
from tests.unit.features.policy_world import ANY, applied, interface, native, rule

if TYPE_CHECKING:
    from ovs_bridge import OvsBridge

    from antrea.engine import Sink


def standing(ovs: OvsBridge) -> tuple[int, int, int]:
    """Groups, meters, and flows that name one of them."""
    flows = [line for line in ovs.dump() if "group:" in line or "meter:" in line]
    return (
        ovs.ofctl("dump-groups").count("group_id="),
        ovs.ofctl("dump-meters").count("meter="),
        len(flows),
    )


async def test_groups_and_meters_are_there_again_before_the_flows_that_name_them(ovs: OvsBridge) -> None:
    facts = Facts()
    for pool, low, high in POLICY.ranks:
        facts.ids.between(pool, low, high)
    pod = LOCAL[0]
    rejecting = native("p", "all", rule("In", ANY, action="Reject"))
    rows = (interface(pod.name, pod.number, *pod.ips), *applied("all", pod.told), rejecting)
    for row in (CONFIG, NODE, GATEWAY, RealizedPipeline(PIPELINE), *rows):
        facts.put(row)
    ofctl = Ofctl(ovs.process.directory / "br-int.mgmt")
    flows, meters = FlowSink(ofctl, PIPELINE, 1), MeterSink(ofctl)
    sinks: dict[type, Sink] = {Flow: flows, Group: flows, Meter: meters}
    engine = Engine(facts, (*POD_CONNECTIVITY.units, *POLICY.units), sinks, pace=Pace(first=0.02))
    running = asyncio.create_task(engine.run())
    try:
        await asyncio.wait_for(engine.quiet(), 60)
        assert standing(ovs) == (5, 1, 7 + 1)
        ovs.process.kill("ovs-vswitchd")
        (ovs.process.directory / "br-int.mgmt").unlink()
        ovs.process.start_switch()
        until(lambda: listens(ovs.process.directory / "br-int.mgmt"), "management socket")
        assert standing(ovs) == (0, 0, 0)
        for sink in (flows, meters):
            engine.resync(sink)
        await asyncio.wait_for(engine.quiet(), 60)
        assert standing(ovs) == (5, 1, 7 + 1)
        assert not engine.errors.counts
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
