"""Traceflow in the agent: flows for each running trace, and acts of the Node where it begins.

parity: pkg/agent/controller/traceflow/traceflow_controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Act, Unit
from antrea.facts.fact import Fact
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_feature import AgentFeature, RealizedPipeline
from antrea.features.traceflow.flow import common_flows, marking_flow
from antrea.features.traceflow.preparation import PreparedTrace
from antrea.features.traceflow.trace import GATE, RUNNING_TRACES, RunningTrace
from antrea.features.traceflow.uncounted import uncounted_flows
from antrea.openflow.cookie import Category
from antrea.openflow.meter import Meter, PacketInMeter, packet_in_meter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.openflow.flow import Flow


class SeenTrace(Fact, frozen=True):
    """Mark that this Node has traced a packet of live traffic: no other is."""

    name: str
    uid: str

    @property
    def key(self) -> str:
        return self.name


class PrepareTrace(Act, frozen=True):
    """Request to find the destination of a trace that begins at a Pod of this Node."""

    name: str


class InjectPacket(Act, frozen=True):
    """Request to inject the packet of a trace whose flows are in place."""

    prepared: PreparedTrace


def trace_meter(facts: Facts, _: RealizedPipeline) -> Iterator[Meter]:
    """Yield the meter of traced packets to the agent."""
    if (config := facts.get(AgentConfig)) is not None:
        yield packet_in_meter(PacketInMeter.TRACEFLOW, config.packet_in_rate, Category.TRACEFLOW)


def is_seen(facts: Facts, trace: RunningTrace) -> bool:
    """Whether this Node has traced a packet of live traffic, also before its agent was restarted."""
    seen, node = facts.get(SeenTrace, trace.name), facts.get(ThisNode)
    reported = trace.spec.live_traffic and node is not None and node.name in trace.reported
    return reported or (seen is not None and seen.uid == trace.uid)


def trace_entries(facts: Facts, trace: RunningTrace) -> Iterator[Flow | PrepareTrace | InjectPacket]:
    """Yield the entries of a trace; none once a packet of live traffic has been traced here."""
    prepared = facts.get(PreparedTrace, trace.name)
    if is_seen(facts, trace):
        return
    yield from common_flows(facts, trace)
    if not trace.spec.live_traffic:
        yield from uncounted_flows(facts, trace)
    if prepared is None or prepared.uid != trace.uid:
        if facts.by(PodInterface, "pod", trace.pod):
            yield PrepareTrace(trace.uid, trace.uid, trace.name)
    elif trace.spec.live_traffic:
        yield marking_flow(trace, prepared)
    else:
        yield InjectPacket(trace.uid, prepared, prepared)


FEATURES = (
    AgentFeature(
        name="Traceflow",
        gate=GATE,
        units=(Unit(RealizedPipeline, trace_meter), Unit(RunningTrace, trace_entries)),
        watched=(RUNNING_TRACES,),
        category=Category.TRACEFLOW,
        sweep_after=(RunningTrace,),
    ),
)
