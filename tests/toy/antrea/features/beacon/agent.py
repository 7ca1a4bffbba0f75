"""Beacons in the agent: packets from Pods to the address of a Beacon go to this Node, which writes an Event once they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.beacon.beacon import WATCHED, BeaconAddress
from antrea.features.beacon.gate import GATE

from antrea.config.agent import AgentConfig
from antrea.engine import Act, Unit
from antrea.facts.fact import Fact
from antrea.facts.ovs import OvsPort
from antrea.features.framework.agent_feature import AgentFeature
from antrea.openflow.action import goto
from antrea.openflow.cookie import Category
from antrea.openflow.fields import TO_GATEWAY_REG_MARK
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import dst
from antrea.openflow.priority import Priority
from antrea.openflow.table import Stage
from antrea.openflow.tables import L3_FORWARDING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

flow = flows_of(Category.EXTERNAL_NODE_CONNECTIVITY)


class Heartbeat(Fact, frozen=True):
    """How often the Node's part has looked."""

    number: int

    @property
    def key(self) -> str:
        return ""


class Lit(Act, frozen=True):
    """The flows of a Beacon are there."""

    ip: str


def beacon_entries(facts: Facts, beacon: BeaconAddress) -> Iterator[Flow | Lit]:
    """Yield the flow of a Beacon, as soon as the part has looked once."""
    facts.need(OvsPort, facts.need(AgentConfig).host_gateway)
    facts.need(Heartbeat, "")
    yield flow(
        L3_FORWARDING, Priority.HIGH, dst(beacon.ip), then=[TO_GATEWAY_REG_MARK.load, goto(Stage.SWITCHING)]
    )
    yield Lit(beacon.name, beacon, ip=beacon.ip)


FEATURES = (
    AgentFeature(
        name=GATE,
        gate=GATE,
        tables=(L3_FORWARDING,),
        units=(Unit(BeaconAddress, beacon_entries),),
        watched=WATCHED,
        category=Category.EXTERNAL_NODE_CONNECTIVITY,
        sweep_after=(BeaconAddress,),
        replay_after=(BeaconAddress,),
    ),
)
