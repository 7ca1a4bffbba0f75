"""Throughput of joined records: bits a second, between two records of the same Node.

Times of records by gRPC are as exact as the agent has them; those of IPFIX are whole seconds.
parity: pkg/flowaggregator/intermediate/aggregate.go aggregateRecords, addFieldsForThroughputCalculation
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.flow import NANOS

if TYPE_CHECKING:
    from antrea.apis.flow import FlowRecord

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
