"""Writes a record into a Flow, and reads one: bounded, since anybody with a certificate of agents may send them.

parity: pkg/agent/flowexporter/exporter/grpc.go createMessage
"""

from __future__ import annotations

import socket
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec

from antrea.apis.flow import MAX_REQUEST_BYTES, MAX_TEXT, NANOS, BiflowDirection, FlowRecord

SHARED: Final = 32_768
"""Texts and addresses of which records that have the same share one."""
MAX_SHARED: Final = 96
"""Characters of a text that is shared: what anybody sends fills no memory."""
_U8, _U16, _U32 = 0xFF, 0xFFFF, 0xFFFFFFFF
_STATS: Final = ("packet_total_count", "packet_delta_count", "octet_total_count", "octet_delta_count")
_TEXTS: Final = (
    "source_pod_namespace", "source_pod_name", "source_node_name",
    "destination_pod_namespace", "destination_pod_name", "destination_node_name", "destination_service_port_name",
    "ingress_network_policy_namespace", "ingress_network_policy_name", "ingress_network_policy_rule_name",
    "egress_network_policy_namespace", "egress_network_policy_name", "egress_network_policy_rule_name",
    "egress_name", "egress_node_name",
    "source_pod_uid", "source_node_uid", "destination_pod_uid", "destination_node_uid", "destination_service_uid",
    "ingress_network_policy_uid", "egress_network_policy_uid", "egress_uid", "egress_node_uid",
)  # fmt: skip
"""Texts of Kubernetes, which have the same name in both."""
_NUMBERS: Final = {
    "flow_type": _U8, "destination_service_port": _U16,
    "ingress_network_policy_type": _U8, "ingress_network_policy_rule_action": _U8,
    "egress_network_policy_type": _U8, "egress_network_policy_rule_action": _U8,
}  # fmt: skip
"""The same, with the largest value."""
_LABELS: Final = msgspec.json.Decoder(dict[str, str])
_ADDRESSES: Final = ("destination_cluster_ip", "destination_service_ip", "egress_ip")
_SIDES: Final = {"source": "from_source_node", "destination": "from_destination_node"}
_RATES: Final = {
    f"{way}throughput{mark}": f"{way}throughput{ours}"
    for way in ("", "reverse_")
    for mark, ours in (("", ""), *((f"_from_{end}", f"_{side}") for end, side in _SIDES.items()))
}
"""Rates of Aggregation by our names."""


def write(record: FlowRecord, into: Any, *, domain: int, now: int) -> None:
    """Fill an empty Flow with what a Node has of a connection."""
    into.ipfix.export_time.seconds, into.ipfix.observation_domain_id = now, domain
    into.start_ts.seconds, into.start_ts.nanos = record.flow_start_seconds, record.flow_start_nanos
    into.end_ts.seconds, into.end_ts.nanos = record.flow_end_seconds, record.flow_end_nanos
    into.end_reason = record.flow_end_reason
    into.ip.version = 6 if record.is_ipv6 else 4
    into.ip.source, into.ip.destination = _packed(record.source_ip), _packed(record.destination_ip)
    transport = into.transport
    transport.protocol_number = record.protocol_identifier
    transport.source_port = record.source_transport_port
    transport.destination_port = record.destination_transport_port
    if record.tcp_state:
        transport.TCP.state_name = record.tcp_state
    _write_kubernetes(record, into.k8s)
    _write_stats(record, into.stats, "", "")
    _write_stats(record, into.reverse_stats, "reverse_", "")
    if record.http_vals:
        into.app.protocol_name = record.app_protocol_name
        into.app.http_vals = record.http_vals.encode(errors="replace")
    if record.proxy_snat_ip:
        into.proxy_snat_ip, into.proxy_snat_port = _packed(record.proxy_snat_ip), record.proxy_snat_port
    if record.biflow_direction == BiflowDirection.ARBITRARY:
        into.is_direction_unknown = True


def write_joined(record: FlowRecord, into: Any, *, now: int) -> None:
    """Fill an empty Flow with what the aggregator has of a connection."""
    write(record, into, domain=record.original_observation_domain_id, now=now)
    into.ipfix.exporter_ip = record.original_exporter_ipv4 or record.original_exporter_ipv6
    into.flow_direction = record.flow_direction
    added = into.aggregation
    for end, side in _SIDES.items():
        if seconds := getattr(record, f"flow_end_seconds_{side}"):
            last = getattr(added, f"end_ts_from_{end}")
            last.seconds, last.nanos = seconds, getattr(record, f"flow_end_nanos_{side}")
            _write_stats(record, getattr(added, f"stats_from_{end}"), "", f"_{side}")
            _write_stats(record, getattr(added, f"reverse_stats_from_{end}"), "reverse_", f"_{side}")
    for name, field in _RATES.items():
        if value := getattr(record, field):
            setattr(added, name, value)
    for end in _SIDES:
        # an empty map is a Pod without labels, none a Pod that is not known
        if text := getattr(record, f"{end}_pod_labels"):
            labels = getattr(into.k8s, f"{end}_pod_labels")
            labels.SetInParent()
            for key, value in _LABELS.decode(text).items():
                labels.labels.add(key=key, value=value)


def _write_kubernetes(record: FlowRecord, into: Any) -> None:
    for name, read in _KUBERNETES:
        if value := read(record):
            setattr(into, name, value)
    for name, read in _KUBERNETES_IPS:
        if text := read(record):
            setattr(into, name, _packed(text))


_KUBERNETES: Final = [(name, attrgetter(name)) for name in (*_TEXTS, *_NUMBERS)]
_KUBERNETES_IPS: Final = [(name, attrgetter(name)) for name in _ADDRESSES]


def _write_stats(record: FlowRecord, into: Any, way: str, side: str) -> None:
    for name in _STATS:
        if value := getattr(record, f"{way}{name}{side}"):
            setattr(into, name, value)


def _packed(text: str) -> bytes:
    """An address as bytes; of something else none."""
    if not text:
        return b""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except OSError:
        return b""


def read(flow: Any) -> FlowRecord:
    """The record of a Flow that a Node has sent: numbers and texts within the bounds that those of IPFIX have."""
    k8s, transport, stats, back = flow.k8s, flow.transport, flow.stats, flow.reverse_stats
    record = FlowRecord(
        flow_start_seconds=_within(flow.start_ts.seconds, _U32),
        flow_end_seconds=_within(flow.end_ts.seconds, _U32),
        flow_start_nanos=_within(flow.start_ts.nanos, NANOS - 1),
        flow_end_nanos=_within(flow.end_ts.nanos, NANOS - 1),
        flow_end_reason=_within(flow.end_reason, _U8),
        source_ip=_address(flow.ip.source),
        destination_ip=_address(flow.ip.destination),
        source_transport_port=_within(transport.source_port, _U16),
        destination_transport_port=_within(transport.destination_port, _U16),
        protocol_identifier=_within(transport.protocol_number, _U8),
        tcp_state=_text(transport.TCP.state_name),
        packet_total_count=stats.packet_total_count,
        packet_delta_count=stats.packet_delta_count,
        octet_total_count=stats.octet_total_count,
        octet_delta_count=stats.octet_delta_count,
        reverse_packet_total_count=back.packet_total_count,
        reverse_packet_delta_count=back.packet_delta_count,
        reverse_octet_total_count=back.octet_total_count,
        reverse_octet_delta_count=back.octet_delta_count,
        proxy_snat_ip=_address(flow.proxy_snat_ip),
        proxy_snat_port=_within(flow.proxy_snat_port, _U16),
        original_observation_domain_id=flow.ipfix.observation_domain_id,
    )
    for name in _TEXTS:
        if value := getattr(k8s, name):
            setattr(record, name, _text(value))
    for name, most in _NUMBERS.items():
        if value := getattr(k8s, name):
            setattr(record, name, _within(value, most))
    for name in _ADDRESSES:
        if value := getattr(k8s, name):
            setattr(record, name, _address(value))
    if flow.is_direction_unknown:
        record.biflow_direction = int(BiflowDirection.ARBITRARY)
    if len(flow.app.http_vals) <= MAX_REQUEST_BYTES and flow.app.http_vals:
        record.app_protocol_name = _text(flow.app.protocol_name)
        record.http_vals = flow.app.http_vals.decode(errors="replace")
    return record


def _within(value: int, most: int) -> int:
    return min(max(value, 0), most)


def _text(value: str) -> str:
    return _shared(value) if len(value) <= MAX_SHARED else value[:MAX_TEXT]


@lru_cache(SHARED)
def _shared(value: str) -> str:
    return value


def _address(data: bytes) -> str:
    """Return an address as text, empty for bytes that are not an address."""
    return _shared_address(data) if len(data) in (4, 16) else ""


@lru_cache(SHARED)
def _shared_address(data: bytes) -> str:
    """Empty for one of zeros."""
    if not any(data):
        return ""
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)
