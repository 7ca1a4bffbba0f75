"""Commands that the flow aggregator answers.

Source: upstream pkg/antctl/antctl.go, pkg/flowaggregator/apis/types.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from antrea.features.framework.command import DataCommand, Flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.features.framework.command import Column

_RECORD: Final = (
    ("SPORT", "sourceTransportPort"), ("DPORT", "destinationTransportPort"), ("PROTO", "protocolIdentifier"),
    ("SRC_POD", "sourcePodName"), ("DST_POD", "destinationPodName"), ("SRC_NS", "sourcePodNamespace"),
    ("DST_NS", "destinationPodNamespace"), ("SERVICE", "destinationServicePortName"),
)  # fmt: skip
_METRICS: Final = (
    ("RECORDS-EXPORTED", "numRecordsExported"), ("RECORDS-RECEIVED", "numRecordsReceived"),
    ("RECORDS-DROPPED", "numRecordsDropped"), ("FLOWS", "numFlows"), ("EXPORTERS-CONNECTED", "numConnToCollector"),
    ("CLICKHOUSE-EXPORTER", "withClickHouseExporter"), ("S3-EXPORTER", "withS3Exporter"),
    ("LOG-EXPORTER", "withLogExporter"), ("IPFIX-EXPORTER", "withIPFIXExporter"),
)  # fmt: skip


def _value(key: str) -> Callable[[dict[str, Any]], str]:
    def cell(row: dict[str, Any]) -> str:
        value = row.get(key, "")
        return str(value).lower() if isinstance(value, bool) else str(value)

    return cell


def _address(end: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(row.get(f"{end}IPv4Address") or row.get(f"{end}IPv6Address", ""))


_ENDS: tuple[Column, ...] = (("SRC_IP", _address("source")), ("DST_IP", _address("destination")))
FLOW_COMMANDS: tuple[DataCommand, ...] = (
    DataCommand(
        "get",
        "flowrecords",
        "F",
        "Print the matching flow records in the flow aggregator",
        "/flowrecords",
        long="Print the connections that the flow aggregator knows; flags say which ends they have.",
        example="  antctl get flowrecords\n  antctl get flowrecords --srcip 10.0.0.1 --srcport 1234 -o json",
        flags=(
            Flag("srcip", "", "only with this source address"),
            Flag("dstip", "", "only with this destination address"),
            Flag("proto", "", "only of this protocol, by its number"),
            Flag("srcport", "", "only with this source port"),
            Flag("dstport", "", "only with this destination port"),
        ),
        columns=(*_ENDS, *((title, _value(key)) for title, key in _RECORD)),
        ordered=False,
    ),
    DataCommand(
        "get",
        "destinations",
        "F",
        "Print where the flow aggregator's records go, and why they do not",
        "/destinations",
        long="Print each destination with the reason for which nothing can be written, and how many records it has had, lost "
        "for lack of room, and removed before their time.",
        columns=tuple(
            (key.upper(), _value(key)) for key in ("name", "exported", "dropped", "removed", "trouble")
        ),
    ),
    DataCommand(
        "get",
        "conditions",
        "F",
        "Print what is wrong with the flow aggregator",
        "/conditions",
        long="Print why its configuration was refused, why it takes no records, and why its certificates cannot be made; "
        "nothing: all is well. What is wrong with a destination is printed by `antctl get destinations`.",
        columns=tuple((key.upper(), _value(key)) for key in ("type", "message")),
    ),
    DataCommand(
        "get",
        "recordmetrics",
        "F",
        "Print record metrics related to flow aggregator",
        "/recordmetrics",
        long="Print how many records the flow aggregator has received, exported and dropped, and where they go.",
        columns=tuple((title, _value(key)) for title, key in _METRICS),
    ),
)
