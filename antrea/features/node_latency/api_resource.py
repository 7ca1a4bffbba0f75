"""Resource of the aggregated API for round-trip times between Nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import stats
from antrea.apis.resource import Column
from antrea.features.framework.api_resource import stats_resource

if TYPE_CHECKING:
    from collections.abc import Iterable


def duration(nanoseconds: int) -> str:
    """Format a duration as Go does: 0s, 5.837ms, 1m2.5s. Source: go.dev/pkg/time Duration.String."""
    if nanoseconds < 0:
        return f"-{duration(-nanoseconds)}"
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if 0 < nanoseconds < size * 1000:
            return _decimal(nanoseconds, size) + unit
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    seconds = _decimal(rest, 10**9) + "s"
    if minutes < 60:
        return f"{minutes}m{seconds}" if minutes else seconds
    return f"{minutes // 60}h{minutes % 60}m{seconds}"


def _decimal(value: int, size: int) -> str:
    whole, rest = divmod(value, size)
    digits = len(str(size)) - 1
    fraction = f"{rest:0{digits}}".rstrip("0") if digits else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def _round_trips(row: stats.NodeLatencyStats) -> Iterable[int]:
    return (
        target.last_measured_rtt_nanoseconds
        for peer in row.peer_node_latency_stats
        for target in peer.target_ip_latency_stats
    )


def _average(row: stats.NodeLatencyStats) -> str:
    values = list(_round_trips(row))
    return duration(sum(values) // len(values) if values else 0)


RESOURCES = (
    stats_resource(
        "nodelatencystats", "nodelatencystats", stats.NodeLatencyStats, ("create", "delete", "get", "list"),
        columns=(
            Column("Node Name", "string", lambda row: row.metadata.name, "name", "Name of Node from which latency was measured."),
            Column(
                "Num Latency Entries", "integer", lambda row: len(row.peer_node_latency_stats), "int64",
                "Number of peers for which latency measurements are available.",
            ),
            Column("Avg Latency", "string", _average, "", "Average latency value across all peers."),
            Column(
                "Max Latency", "string", lambda row: duration(max(_round_trips(row), default=0)), "",
                "Largest latency value across all peers.",
            ),
        ),
    ),
)  # fmt: skip
