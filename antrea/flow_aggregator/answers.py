"""Answers of the aggregator's API.

parity: pkg/flowaggregator/apiserver/handlers
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from antrea.decoding import is_number
from antrea.errors import Invalid
from antrea.ipfix.template import Contents, aggregated_elements
from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from antrea.apis.flow import FlowRecord
    from antrea.flow_aggregator.destination import Destination
    from antrea.flow_aggregator.intake import Intake

_ASKED = {
    "srcip": "source_ip",
    "dstip": "destination_ip",
    "srcport": "source_transport_port",
    "dstport": "destination_transport_port",
    "proto": "protocol_identifier",
}
_CONTENTS = Contents(direction=True)
MAX_RECORDS = 20_000
"""Records of one answer."""


class RecordMetrics(msgspec.Struct, rename="camel"):
    """The answer of /recordmetrics."""

    num_records_exported: int = 0
    num_records_received: int = 0
    num_records_dropped: int = 0
    num_flows: int = 0
    num_conn_to_collector: int = 0
    with_click_house_exporter: bool = False
    with_s3_exporter: bool = msgspec.field(default=False, name="withS3Exporter")
    with_log_exporter: bool = False
    with_ipfix_exporter: bool = msgspec.field(default=False, name="withIPFIXExporter")


class DestinationState(msgspec.Struct, rename="camel"):
    """A row of the answer of /destinations."""

    name: str
    trouble: str
    """Why nothing can be written; empty: it can."""
    exported: int
    dropped: int
    """Records for which its buffer had no room."""
    removed: int = 0
    """Records that the store removed before their time."""


class Condition(msgspec.Struct, rename="camel"):
    """A row of the answer of /conditions: something that is not as it should be, but for destinations."""

    type: str
    message: str


def conditions(**messages: str) -> list[Condition]:
    """Return the present conditions by type; an empty message means that all is well."""
    return [Condition(kind, message) for kind, message in messages.items() if message]


def destination_states(to: Sequence[Destination], removed: int) -> list[DestinationState]:
    """Return the present states of destinations; `removed` are those of the store."""
    return [
        DestinationState(
            destination.name,
            destination.trouble,
            destination.exported,
            destination.dropped,
            removed * (destination.name == "store"),
        )
        for destination in to
    ]


def flow_records(records: Iterable[FlowRecord], query: Mapping[str, str]) -> list[dict[str, Any]]:
    """Values by the names of their elements, of connections with the ends that are asked for. Raises Invalid."""
    wanted: list[tuple[str, Any]] = []
    for key, field in _ASKED.items():
        if text := query.get(key, ""):
            if field.endswith("_ip"):
                wanted.append((field, text))
            elif is_number(text, 65535):
                wanted.append((field, int(text)))
            else:
                raise Invalid(key, f"{text[:20]!r} is not a number")
    rows = []
    for record in records:
        if all(getattr(record, field) == value for field, value in wanted):
            elements = aggregated_elements(ipv6=record.is_ipv6, contents=_CONTENTS)
            rows.append(
                {element.name: getattr(record, element.field) for element in elements}
                | {"appProtocolName": record.app_protocol_name, "httpVals": record.http_vals}
            )
            if len(rows) == MAX_RECORDS:
                break
    return rows


def record_metrics(
    received: int, flows: int, sessions: int, dropped: int, to: Sequence[Destination]
) -> RecordMetrics:
    """Return the present counts of records."""
    names = {destination.name for destination in to}
    return RecordMetrics(
        num_records_exported=sum(destination.exported for destination in to),
        num_records_received=received,
        num_records_dropped=dropped + sum(destination.dropped for destination in to),
        num_flows=flows,
        num_conn_to_collector=sessions,
        with_click_house_exporter="clickHouse" in names,
        with_s3_exporter="s3Uploader" in names,
        with_log_exporter="flowLogger" in names,
        with_ipfix_exporter="flowCollector" in names,
    )


RECEIVED = Metric(
    "antrea_flow_aggregator_received_record_count",
    "counter",
    "ALPHA",
    "Number of records that agents have sent.",
)
REFUSED = Metric(
    "antrea_flow_aggregator_refused_message_count",
    "counter",
    "ALPHA",
    "Number of messages that were no IPFIX.",
)
REJECTED = Metric(
    "antrea_flow_aggregator_rejected_session_count",
    "counter",
    "ALPHA",
    "Number of connections of which none of agents' certificates was presented, or that were too many.",
)
INTERRUPTED = Metric(
    "antrea_flow_aggregator_interrupted_session_count",
    "counter",
    "ALPHA",
    "Number of sessions that a reset, a time limit or an end within a message has ended.",
)
FLOWS = Metric("antrea_flow_aggregator_flow_count", "gauge", "ALPHA", "Number of connections that are known.")
EXPORTED = Metric(
    "antrea_flow_aggregator_exported_record_count",
    "counter",
    "ALPHA",
    "Number of joined records that a destination has taken.",
)
DROPPED = Metric(
    "antrea_flow_aggregator_dropped_record_count",
    "counter",
    "ALPHA",
    "Number of joined records for which the buffer of a destination had no room.",
)
FAILING = Metric(
    "antrea_flow_aggregator_destination_failing",
    "gauge",
    "ALPHA",
    "1 while nothing can be written to a destination.",
)


def metrics_text(metrics: RecordMetrics, taken: Intake, to: Sequence[Destination]) -> str:
    """In Prometheus' format."""
    rows = (
        (RECEIVED, metrics.num_records_received),
        (REFUSED, taken.refused),
        (REJECTED, taken.rejected),
        (INTERRUPTED, taken.interrupted),
        (FLOWS, metrics.num_flows),
    )
    by_destination = (
        (EXPORTED, [Sample(destination.exported, {"destination": destination.name}) for destination in to]),
        (DROPPED, [Sample(destination.dropped, {"destination": destination.name}) for destination in to]),
        (
            FAILING,
            [Sample(bool(destination.trouble), {"destination": destination.name}) for destination in to],
        ),
    )
    texts = "".join(metric.text([Sample(value)]) for metric, value in rows)
    return texts + "".join(metric.text(samples) for metric, samples in by_destination)
