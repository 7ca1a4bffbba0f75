"""Flows by which an injected packet of a Traceflow is in no flow record and in no statistic.

They do what the flows below them do, except that they commit no connection, are not read by statistics, and only send the copy
of the trace to the agent. A packet of live traffic is one of a real connection, which is recorded and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.family import is_ipv6
from antrea.facts.ovs import PodInterface
from antrea.features.egress.agent.flow import egress_pod_flows
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.traceflow.flow import Leaving, family, maker, tagged
from antrea.openflow.action import DROP, goto
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
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT
from antrea.openflow.tables import CONNTRACK_COMMIT, EGRESS_MARK, OUTPUT, SNAT_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.traceflow.trace import RunningTrace
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
