"""Packets of captured Pods that the switch drops: the agent gets a copy of each, for the files of captures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.shown import one_line
from antrea.config.agent import AgentConfig
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.diversion import diversions, ways
from antrea.features.network_policy.agent.conjunction import target_matches
from antrea.features.network_policy.agent.deciding_rule import deciding_rule
from antrea.features.network_policy.agent.isolation import closed_tables, closing_priority
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.packet_capture.capture import CaptureProgress, CaptureRequest, capture_point
from antrea.openflow.action import clone, controller, meter, resubmit
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    AP_CONJ_ID,
    AP_DENY_REG_MARK,
    AUDIT_PASS,
    DROP_NOT_TOLD_REG_MARK,
    DROP_REPORTED_REG_MARK,
    OUTPUT_TO_CONTROLLER_REG_MARK,
    PACKET_IN_CAPTURE_REG_MARK,
    PACKET_IN_TABLE,
    TARGET_OF_PORT,
    PacketIn,
)
from antrea.openflow.flow import flows_of
from antrea.openflow.match import ct_state, in_port, ip, ipv6
from antrea.openflow.meter import PacketInMeter, packet_in_meter
from antrea.openflow.priority import Priority
from antrea.openflow.tables import CONNTRACK_STATE, OUTPUT, SPOOF_GUARD, TRAFFIC_CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.openflow.field import Match
    from antrea.openflow.flow import Flow
    from antrea.openflow.meter import Meter
    from antrea.openflow.packet_in import PacketIn as SentPacket
    from antrea.openflow.table import Table

flow = flows_of(Category.TRACEFLOW)
MAX_LENGTH = 1000
"""Maximum number of characters of a reason."""


def capture_meter(facts: Facts, _: RealizedPipeline) -> Iterator[Meter]:
    """Yield the meter of dropped packets to the agent."""
    if (config := facts.get(AgentConfig)) is not None:
        yield packet_in_meter(PacketInMeter.PACKET_CAPTURE, config.packet_in_rate, Category.TRACEFLOW)


def copy_flow(_: Facts, __: RealizedPipeline) -> Iterator[Flow]:
    """Yield the flow by which copies leave."""
    then = [meter(PacketInMeter.PACKET_CAPTURE), controller(PacketIn.PACKET_CAPTURE)]
    marks = (PACKET_IN_CAPTURE_REG_MARK.match, OUTPUT_TO_CONTROLLER_REG_MARK.match)
    yield flow(OUTPUT, Priority.NORMAL, *marks, then=then)


def dropped_packet_flows(facts: Facts, request: CaptureRequest) -> Iterator[Flow]:
    """Yield flows while the capture runs on this Node. Captures of one Pod have the same flows."""
    progress, realized = facts.get(CaptureProgress, request.name), facts.get(RealizedPipeline)
    point = capture_point(request.spec)
    if progress is None or progress.uid != request.uid or progress.phase != "Started":
        return
    if realized is None or point is None:
        return
    for pod in facts.by(PodInterface, "pod", f"{point.namespace}/{point.name}"):
        for table, priority, match in _drops(facts, pod):
            if realized.pipeline.has(table):
                number = PACKET_IN_TABLE(realized.pipeline.id(table.name))
                marks = (PACKET_IN_CAPTURE_REG_MARK, OUTPUT_TO_CONTROLLER_REG_MARK, number)
                copy = clone(*(mark.load for mark in marks), resubmit(OUTPUT))
                # then what would be done without this flow, by the same table
                then = [copy, DROP_REPORTED_REG_MARK.load, resubmit(table)]
                yield flow(table, priority, *match, DROP_NOT_TOLD_REG_MARK.match, then=then)


def _drops(facts: Facts, pod: PodInterface) -> Iterator[tuple[Table, int, tuple[Match, ...]]]:
    """Tables in which packets from or to the Pod are dropped, each with a priority above that of what drops, and its match."""
    sent, received = in_port(pod.ofport), TARGET_OF_PORT(pod.ofport).match
    for family in (ip, ipv6):
        yield SPOOF_GUARD, Priority.LOW, (family, sent)
        yield CONNTRACK_STATE, Priority.NORMAL + 1, (family, sent, ct_state("+inv+trk"))
    # copies that audited policies judge end there as well, and nothing has become of the packets themselves
    denied = (AP_DENY_REG_MARK.match, AUDIT_PASS(0).match)
    for here, end in ((OUT, sent), (IN, sent), (IN, received)):
        yield here.metric, Priority.NORMAL + 1, (end, *denied)
    for other in facts.all(PodInterface):
        for here, table in closed_tables(facts, other):
            first = () if table is here.default else (ct_state("+new+trk"),)
            mine = () if other == pod else (sent,)
            for match in target_matches(here, other) if other == pod or here is IN else ():
                yield table, closing_priority(here, table) + 1, (*match, *mine, *first, AUDIT_PASS(0).match)
        for diversion in diversions():
            for way in diversion.closed(facts, other):
                if other == pod:
                    yield TRAFFIC_CONTROL, diversion.closed_priority + 1, (way,)
                elif way not in ways(other, "Egress"):
                    yield TRAFFIC_CONTROL, diversion.closed_priority + 1, (way, sent)


def drop_reason(facts: Facts, sent_packet: SentPacket) -> str:
    """Why the switch drops this packet, in one line."""
    realized = facts.get(RealizedPipeline)
    number = sent_packet.value(PACKET_IN_TABLE)
    table = realized.pipeline.name_of(number) if realized else ""
    return one_line(f"{_cause(facts, sent_packet, table)} (table {table})")[:MAX_LENGTH]


def _cause(facts: Facts, sent_packet: SentPacket, table: str) -> str:
    for here, side in ((OUT, "sends"), (IN, "receives")):
        if table == here.metric.name:
            decided = deciding_rule(facts, sent_packet.value(AP_CONJ_ID))
            if decided is None:
                return "Dropped by a rule that is gone meanwhile"
            action = "Rejected" if decided.rule.action == "Reject" else "Dropped"
            return f"{action} by {decided.policy}, rule {decided.rule.name or 'without a name'}"
        if table == here.default.name:
            return f"Dropped: a NetworkPolicy isolates the Pod that {side} it, and no rule allows it"
        if table in (here.antrea.name, here.rule.name):
            return f"Dropped: a rule for the Pod that {side} it cannot be enforced, see the policy's status"
    if table == TRAFFIC_CONTROL.name:
        return f"Dropped: {table} {_closing(facts, sent_packet)} redirects it, and the target port is missing"
    if table == SPOOF_GUARD.name:
        return "Dropped: its source is none of the Pod's addresses"
    return "Dropped: connection tracking calls it invalid"


def _closing(facts: Facts, sent_packet: SentPacket) -> str:
    """Names of the objects that close the Pods of both ends; of a Pod whose labels are not known, none."""
    ends = (sent_packet.in_port, sent_packet.value(TARGET_OF_PORT))
    pods = (pod for pod in facts.all(PodInterface) if pod.ofport in ends)
    rows = (
        diversion.of_pod(facts, pod)
        for pod in pods
        for diversion in diversions()
        if tuple(diversion.closed(facts, pod))
    )
    return ", ".join(sorted({row.name for row in rows if row is not None})) or "(not known yet)"
