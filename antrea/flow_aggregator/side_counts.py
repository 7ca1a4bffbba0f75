"""Counters, end and throughput of one Node's record, added to those of the joined one.

Each field is named, which takes a third of the time of a loop over names. Throughput is in bits a second, between two records of
the same Node: times of records by gRPC are as exact as the agent has them; those of IPFIX are whole seconds.
parity: pkg/flowaggregator/intermediate/aggregate.go aggregateRecords, addFieldsForThroughputCalculation
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.flow import NANOS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.apis.flow import FlowRecord

Deltas = tuple[int, int, int, int]
"""Packets and bytes, of both directions."""


def _add_source(into: FlowRecord, record: FlowRecord) -> tuple[int, int, Deltas]:
    byte_count = record.octet_total_count - into.octet_total_count_from_source_node
    back = record.reverse_octet_total_count - into.reverse_octet_total_count_from_source_node
    into.flow_end_seconds_from_source_node = record.flow_end_seconds
    into.flow_end_nanos_from_source_node = record.flow_end_nanos
    into.packet_total_count_from_source_node = record.packet_total_count
    into.octet_total_count_from_source_node = record.octet_total_count
    into.reverse_packet_total_count_from_source_node = record.reverse_packet_total_count
    into.reverse_octet_total_count_from_source_node = record.reverse_octet_total_count
    into.packet_delta_count_from_source_node += record.packet_delta_count
    into.octet_delta_count_from_source_node += record.octet_delta_count
    into.reverse_packet_delta_count_from_source_node += record.reverse_packet_delta_count
    into.reverse_octet_delta_count_from_source_node += record.reverse_octet_delta_count
    return (
        byte_count,
        back,
        (
            into.packet_delta_count_from_source_node,
            into.octet_delta_count_from_source_node,
            into.reverse_packet_delta_count_from_source_node,
            into.reverse_octet_delta_count_from_source_node,
        ),
    )


def _add_destination(into: FlowRecord, record: FlowRecord) -> tuple[int, int, Deltas]:
    byte_count = record.octet_total_count - into.octet_total_count_from_destination_node
    back = record.reverse_octet_total_count - into.reverse_octet_total_count_from_destination_node
    into.flow_end_seconds_from_destination_node = record.flow_end_seconds
    into.flow_end_nanos_from_destination_node = record.flow_end_nanos
    into.packet_total_count_from_destination_node = record.packet_total_count
    into.octet_total_count_from_destination_node = record.octet_total_count
    into.reverse_packet_total_count_from_destination_node = record.reverse_packet_total_count
    into.reverse_octet_total_count_from_destination_node = record.reverse_octet_total_count
    into.packet_delta_count_from_destination_node += record.packet_delta_count
    into.octet_delta_count_from_destination_node += record.octet_delta_count
    into.reverse_packet_delta_count_from_destination_node += record.reverse_packet_delta_count
    into.reverse_octet_delta_count_from_destination_node += record.reverse_octet_delta_count
    return (
        byte_count,
        back,
        (
            into.packet_delta_count_from_destination_node,
            into.octet_delta_count_from_destination_node,
            into.reverse_packet_delta_count_from_destination_node,
            into.reverse_octet_delta_count_from_destination_node,
        ),
    )


ADD_SIDE: Final[Mapping[str, Callable[[FlowRecord, FlowRecord], tuple[int, int, Deltas]]]] = {
    "from_source_node": _add_source,
    "from_destination_node": _add_destination,
}
"""Functions by side that add a record of that Node; each returns by how much the bytes of both directions grew, and the counts since the last export."""


def add_newest(into: FlowRecord, record: FlowRecord, deltas: Deltas) -> None:
    """Take over the counters of a record that is the newest of both Nodes, and what came of its Node since the last export."""
    into.packet_total_count = max(into.packet_total_count, record.packet_total_count)
    into.octet_total_count = max(into.octet_total_count, record.octet_total_count)
    into.reverse_packet_total_count = max(into.reverse_packet_total_count, record.reverse_packet_total_count)
    into.reverse_octet_total_count = max(into.reverse_octet_total_count, record.reverse_octet_total_count)
    into.packet_delta_count, into.octet_delta_count = deltas[0], deltas[1]
    into.reverse_packet_delta_count, into.reverse_octet_delta_count = deltas[2], deltas[3]


def reset_deltas(record: FlowRecord) -> None:
    """After it was exported: totals stay."""
    record.packet_delta_count = record.octet_delta_count = record.reverse_packet_delta_count = (
        record.reverse_octet_delta_count
    ) = 0
    record.packet_delta_count_from_source_node = record.octet_delta_count_from_source_node = (
        record.reverse_packet_delta_count_from_source_node
    ) = record.reverse_octet_delta_count_from_source_node = 0
    record.packet_delta_count_from_destination_node = record.octet_delta_count_from_destination_node = (
        record.reverse_packet_delta_count_from_destination_node
    ) = record.reverse_octet_delta_count_from_destination_node = 0
    record.throughput = record.reverse_throughput = 0
    record.throughput_from_source_node = record.reverse_throughput_from_source_node = 0
    record.throughput_from_destination_node = record.reverse_throughput_from_destination_node = 0


SIDES: Final = ("from_source_node", "from_destination_node")


def last_end(into: FlowRecord, sides: tuple[str, ...]) -> float:
    """Return the end of the last record from these sides; 0 if there was none."""
    before = 0.0
    if SIDES[0] in sides:
        before = into.flow_end_seconds_from_source_node + into.flow_end_nanos_from_source_node / NANOS
    if SIDES[1] in sides:
        other = (
            into.flow_end_seconds_from_destination_node + into.flow_end_nanos_from_destination_node / NANOS
        )
        before = max(before, other)
    return before


def age(record: FlowRecord) -> float:
    """Seconds that a connection lasts; 0: they are not known, as it was found some time after it began."""
    if record.flow_end_nanos and not record.flow_start_nanos:
        return 0.0
    return record.end - record.start


def rates(byte_count: int, back: int, seconds: float) -> tuple[int, int]:
    """Bits a second, of both directions; 0 where the time is not known."""
    if seconds <= 0:
        return 0, 0
    return int(max(byte_count, 0) * 8 / seconds), int(max(back, 0) * 8 / seconds)


def set_rates(into: FlowRecord, sides: tuple[str, ...], rates: tuple[int, int], *, newest: bool) -> None:
    """Set the rates of a record from these sides; `newest`: it is the newest of both Nodes."""
    if SIDES[0] in sides:
        into.throughput_from_source_node, into.reverse_throughput_from_source_node = rates
    if SIDES[1] in sides:
        into.throughput_from_destination_node, into.reverse_throughput_from_destination_node = rates
    if newest:
        into.throughput, into.reverse_throughput = rates
