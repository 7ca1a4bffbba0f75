"""Traceflow in the agent: flows for each running trace, and acts of the Node where it begins.

An injected packet is in no flow record and in no statistic: `uncounted_flows` do what the flows below them do, except that they
commit no connection, are not read by statistics, and only send the copy of the trace to the agent. A packet of live traffic is one
of a real connection, which is recorded and counted.

parity: pkg/agent/controller/traceflow/traceflow_controller.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Act, Unit
from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.egress.agent.flow import egress_pod_flows
from antrea.features.framework.agent_feature import AgentFeature, RealizedPipeline
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.traceflow.flow import Leaving, common_flows, family, maker, marking_flow, tagged
from antrea.features.traceflow.preparation import PreparedTrace
from antrea.features.traceflow.trace import GATE, RUNNING_TRACES, RunningTrace
from antrea.openflow.action import DROP, goto
from antrea.openflow.cookie import Category
from antrea.openflow.ct import ct
from antrea.openflow.field import Action, Match
from antrea.openflow.fields import (
    AP_DENY,
    CONN_SNAT_CT_MARK,
    HAIRPIN_CT_MARK,
    OUTPUT_TO_CONTROLLER_REG_MARK,
    Zone,
)
from antrea.openflow.match import ct_state, dst, src
from antrea.openflow.meter import Meter, PacketInMeter, packet_in_meter
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT
from antrea.openflow.tables import CONNTRACK_COMMIT, EGRESS_MARK, OUTPUT, SNAT_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.openflow.flow import Flow

ABOVE_EGRESS = 2
"""Difference of priority to flows of Egress that they repeat: the exceptions of an Egress are 1 above its flows."""
ABOVE_COUNTERS = Priority.HIGH + 1


def uncounted_flows(facts: Facts, trace: RunningTrace) -> Iterator[Flow]:
    """Yield flows of every Node, and at the Pod where the trace begins."""
    if facts.get(RealizedPipeline) is None:
        return
    flow, mine = maker(trace), tagged(trace)
    yield flow(CONNTRACK_COMMIT, ABOVE_COUNTERS, *mine, then=[goto(OUTPUT)])
    yield flow(OUTPUT, Leaving.OTHER, *mine, OUTPUT_TO_CONTROLLER_REG_MARK.match, then=DROP)
    for here in (OUT, IN):
        yield flow(here.metric, ABOVE_COUNTERS, *mine, AP_DENY(0).match, then=[goto(NEXT)])
    pipeline = facts.need(RealizedPipeline).pipeline
    for pod in facts.by(PodInterface, "pod", trace.pod):
        if pipeline.has(SNAT_MARK):
            yield from _hairpin_flows(trace, pod)
        if pipeline.has(EGRESS_MARK):
            yield from _egress_flows(facts, trace, pod)


def _hairpin_flows(trace: RunningTrace, pod: PodInterface) -> Iterator[Flow]:
    """Yield flows that translate what a Service sends back to its Pod, by a connection that has no source as recorded ones
    have.
    """
    zone = Zone.CT_ZONE_V6 if trace.ipv6 else Zone.CT_ZONE
    commit = ct(zone, commit=True, table=NEXT, then=[CONN_SNAT_CT_MARK.load, HAIRPIN_CT_MARK.load])
    for ip in pod.ips:
        if is_ipv6(ip) == trace.ipv6:
            match = (*tagged(trace), ct_state("+new+trk"), src(ip), dst(ip))
            yield maker(trace)(SNAT_MARK, Priority.LOW + 1, *match, then=[commit])


def _egress_flows(facts: Facts, trace: RunningTrace, pod: PodInterface) -> Iterator[Flow]:
    """Yield flows like those of the Pod's Egress, whose counters are its statistic."""
    flow, mine = maker(trace), tagged(trace)
    other = {"ip", "ipv6"} - {family(trace)}
    for pod_flow in egress_pod_flows(facts, pod):
        if pod_flow.table == EGRESS_MARK.name and not other & set(pod_flow.match):
            match = (*mine, *map(Match, pod_flow.match))
            yield flow(
                EGRESS_MARK, pod_flow.priority + ABOVE_EGRESS, *match, then=map(Action, pod_flow.actions)
            )


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
