"""Joins the two records that the Nodes of a connection make of it, and finds when the joined one is due.

parity: pkg/flowaggregator/intermediate/aggregate.go
"""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.apis.flow import MAX_REQUEST_BYTES, FlowEndReason, FlowRecord, FlowType, RuleAction
from antrea.decoding import decode_json
from antrea.errors import Invalid
from antrea.flow_aggregator.orientation import is_arbitrary, turned, turned_key
from antrea.flow_aggregator.side_counts import (
    ADD_SIDE,
    SIDES,
    add_newest,
    age,
    last_end,
    rates,
    reset_deltas,
    set_rates,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FLOWS: Final = 200_000
"""Connections at a time; records of more are dropped."""
MAX_TRIES: Final = 2
"""Active timeouts for which the other Node's record is awaited."""
_COUNTS: Final = ("packet_total_count", "packet_delta_count", "octet_total_count", "octet_delta_count")
_BOTH: Final = (*_COUNTS, *(f"reverse_{name}" for name in _COUNTS))
_FROM_EXTERNAL, _INTER_NODE = int(FlowType.FROM_EXTERNAL), int(FlowType.INTER_NODE)
_REJECTED: Final = int(RuleAction.REJECT)
_DENIED: Final = (int(RuleAction.DROP), _REJECTED)
_END: Final = int(FlowEndReason.END_OF_FLOW)
"""End reasons as numbers, which are compared in less time than members."""
_JOINED: Final = (
    "source_pod_name", "source_pod_namespace", "source_node_name",
    "destination_pod_name", "destination_pod_namespace", "destination_node_name",
    "destination_service_port", "destination_service_port_name", "destination_cluster_ip", "destination_service_ip",
    "ingress_network_policy_name", "ingress_network_policy_namespace", "ingress_network_policy_type",
    "ingress_network_policy_rule_name", "ingress_network_policy_rule_action",
    "egress_network_policy_name", "egress_network_policy_namespace", "egress_network_policy_type",
    "egress_network_policy_rule_name", "egress_network_policy_rule_action",
    "egress_name", "egress_ip", "egress_node_name",
    "source_pod_uid", "source_node_uid", "destination_pod_uid", "destination_node_uid", "destination_service_uid",
    "ingress_network_policy_uid", "egress_network_policy_uid", "egress_uid", "egress_node_uid",
)  # fmt: skip
"""Fields that only one of both Nodes has."""
Key = tuple[int, str, int, str, int]


class JoinedFlow:
    """A connection, and when its record is due."""

    __slots__ = (
        "active_at",
        "exported_requests",
        "gone",
        "inactive_at",
        "is_complete",
        "key",
        "news",
        "queued",
        "record",
        "tries",
    )

    def __init__(self, key: Key, record: FlowRecord) -> None:
        self.key, self.record = key, record
        self.is_complete = self.gone = False
        self.news = True
        """Whether a record has come since it was exported."""
        self.exported_requests = False
        """Whether the requests of its record were exported."""
        self.tries = 0
        self.active_at = self.inactive_at = 0.0
        self.queued = math.inf
        """For when it is queued."""


def is_ingress_half(record: FlowRecord) -> bool:
    """Whether it is of the Node by which a connection came to a Pod of another Node, which sees that Node as its source.

    It is one from outside, or of a Pod that has asked for a NodePort that kube-proxy serves.
    """
    here = record.flow_type in (_FROM_EXTERNAL, _INTER_NODE) and not record.destination_pod_name
    return here and bool(record.proxy_snat_ip)


def is_from_source(record: FlowRecord) -> bool:
    """Whether the Node of the source made it."""
    return is_ingress_half(record) or bool(record.source_pod_name and not record.destination_pod_name)


def needs_both(record: FlowRecord) -> bool:
    """Whether the other Node makes a record, too: not of what the source's Node denied, nor of what was rejected."""
    if record.egress_network_policy_rule_action in _DENIED:
        return False
    if record.ingress_network_policy_rule_action == _REJECTED:
        return False
    return record.flow_type == _INTER_NODE or is_ingress_half(record)


def key_of(record: FlowRecord) -> Key:
    """Return the key that both Nodes' records of a connection share."""
    source, port = record.source_ip, record.source_transport_port
    if is_ingress_half(record):
        source, port = record.proxy_snat_ip, record.proxy_snat_port
    return (
        record.protocol_identifier,
        source,
        port,
        record.destination_ip,
        record.destination_transport_port,
    )


class Aggregation:
    """All connections; times in seconds of the monotonic clock."""

    def __init__(self, active: float, inactive: float, most: int = MAX_FLOWS) -> None:
        self._active, self._inactive, self._most = max(active, 1.0), max(inactive, 1.0), most
        self._flows: dict[Key, JoinedFlow] = {}
        self._heap: list[tuple[float, int, JoinedFlow]] = []
        self._order = count()
        self.dropped = 0
        """Records that are not exported: there was no room, or the other Node's never came."""

    def __len__(self) -> int:
        return len(self._flows)

    def records(self) -> Iterator[FlowRecord]:
        """Yield the joined record of each connection."""
        return (flow.record for flow in self._flows.values())

    def add(self, record: FlowRecord, now: float) -> None:
        """Take in a Node's record."""
        record = self._directed(record)
        key = key_of(record)
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= self._most:
                self.dropped += 1
                return
            flow = self._flows[key] = JoinedFlow(key, first_record(record))
            flow.is_complete = not needs_both(record)
            flow.active_at = now if flow.is_complete else now + self._active
        else:
            self._update(flow, record, now)
        flow.inactive_at = now + self._inactive
        self._push(flow)

    def _directed(self, record: FlowRecord) -> FlowRecord:
        """The record in the direction that is known of its connection; what has waited in the other one is turned."""
        other = self._flows.get(turned_key(key_of(record)))
        if other is None:
            return record
        if is_arbitrary(record):
            record = turned(record)
            record.biflow_direction = other.record.biflow_direction
        elif is_arbitrary(other.record):
            del self._flows[other.key]
            other.key, other.record = turned_key(other.key), turned(other.record)
            self._flows[other.key] = other
        return record

    def _update(self, flow: JoinedFlow, record: FlowRecord, now: float) -> None:
        sides: tuple[str, ...] = SIDES
        if needs_both(record):
            if not flow.is_complete and is_from_source(record) != is_from_source(flow.record):
                join(flow.record, record)
                flow.is_complete = True
                flow.active_at = now
            sides = SIDES[:1] if is_from_source(record) else SIDES[1:]
        elif not flow.is_complete:
            # what one Node alone has to tell, such as a denial after records of what was let pass
            join(flow.record, record)
            flow.is_complete = True
            flow.active_at = now
        if not is_arbitrary(record):
            flow.record.biflow_direction = record.biflow_direction
        add_counts(flow.record, record, sides)
        if record.http_vals:
            is_other = flow.record.app_protocol_name != record.app_protocol_name  # as TLS after CONNECT
            before = "" if flow.exported_requests or is_other else flow.record.http_vals
            flow.record.http_vals = united(before, record.http_vals)
            flow.record.app_protocol_name, flow.exported_requests = record.app_protocol_name, False
        flow.news = True

    def _push(self, flow: JoinedFlow) -> None:
        """Queue it, unless it is queued for an earlier time: then it is looked at, and queued again."""
        at = min(flow.active_at, flow.inactive_at)
        if at < flow.queued:
            flow.queued = at
            heapq.heappush(self._heap, (at, next(self._order), flow))

    def due(self, now: float, most: int) -> list[FlowRecord]:
        """Joined records that are to be exported now."""
        records: list[FlowRecord] = []
        while self._heap and self._heap[0][0] <= now and len(records) < most:
            at, _, flow = heapq.heappop(self._heap)
            if flow.gone or at != flow.queued:
                continue  # it was queued for an earlier time
            flow.queued = math.inf
            if min(flow.active_at, flow.inactive_at) > now:
                self._push(flow)
                continue
            if not flow.is_complete:
                self._wait(flow, now)
                continue
            if flow.news:
                requests = "" if flow.exported_requests else flow.record.http_vals
                records.append(msgspec.structs.replace(flow.record, http_vals=requests))
                reset_deltas(flow.record)
                flow.news, flow.exported_requests = False, True
            if flow.inactive_at <= now:
                self._forget(flow)
            else:
                flow.active_at = now + self._active
                self._push(flow)
        return records

    def _wait(self, flow: JoinedFlow, now: float) -> None:
        flow.tries += 1
        if flow.tries > MAX_TRIES or flow.inactive_at <= now:
            self.dropped += 1
            self._forget(flow)
            return
        flow.active_at = now + self._active
        self._push(flow)

    def _forget(self, flow: JoinedFlow) -> None:
        flow.gone = True
        del self._flows[flow.key]


def first_record(record: FlowRecord) -> FlowRecord:
    """The first record of a connection, with what is added to it."""
    made = msgspec.structs.replace(record)
    sides: tuple[str, ...] = SIDES
    if needs_both(record):
        sides = SIDES[:1] if is_from_source(record) else SIDES[1:]
    for side in sides:
        setattr(made, f"flow_end_seconds_{side}", record.flow_end_seconds)
        setattr(made, f"flow_end_nanos_{side}", record.flow_end_nanos)
        for name in _BOTH:
            setattr(made, f"{name}_{side}", getattr(record, name))
    rates_since_start = rates(record.octet_total_count, record.reverse_octet_total_count, age(record))
    set_rates(made, sides, rates_since_start, newest=True)
    return made


def join(into: FlowRecord, other: FlowRecord) -> None:
    """Fill in what only the other Node's record has."""
    for name in _JOINED:
        if value := getattr(other, name):
            setattr(into, name, value)
    if is_ingress_half(other):
        into.source_ip, into.source_transport_port = other.source_ip, other.source_transport_port
        into.proxy_snat_ip, into.proxy_snat_port = other.proxy_snat_ip, other.proxy_snat_port
        into.flow_type = other.flow_type


def add_counts(into: FlowRecord, record: FlowRecord, sides: tuple[str, ...]) -> None:
    """Take over times, state and counters of a Node's newer record; an older one than its last changes nothing."""
    end, before = record.end, last_end(into, sides)
    newest = end >= into.end
    if newest:
        into.flow_end_seconds, into.flow_end_nanos = record.flow_end_seconds, record.flow_end_nanos
    if 0 < before >= end and record.flow_end_reason != _END:
        return
    if into.flow_end_reason != _END:
        into.flow_end_reason = record.flow_end_reason
    seconds = end - before if before else age(record)
    for side in sides:
        byte_count, back, deltas = ADD_SIDE[side](into, record)
    rates_since_export = rates(byte_count, back, seconds)
    if newest:
        into.tcp_state = record.tcp_state
    # a Node may count nothing of it: one that was asked for another's Pod, on a datapath that counts at Pods alone
    counts = is_counted(record) and (newest or not is_counted(into))
    if counts:
        add_newest(into, record, deltas)
    set_rates(into, sides, rates_since_export, newest=counts)


def is_counted(record: FlowRecord) -> bool:
    """Whether its packets are counted."""
    return bool(record.packet_total_count or record.reverse_packet_total_count)


def united(first: str, other: str) -> str:
    """The requests of both; only the first ones if they are too long together, and what is not JSON is left out."""
    try:
        requests = [decode_json(text, dict[str, msgspec.Raw], "requests") for text in (first, other) if text]
    except Invalid:
        return first
    text = msgspec.json.encode({key: value for each in requests for key, value in each.items()}).decode()
    return text if len(text.encode()) <= MAX_REQUEST_BYTES else first
