"""A record of a connection: what an agent exports of it, and what the flow aggregator makes of the records of two Nodes.

Fields have the names of the information elements of Antrea's registry; an address is text, empty where there is none.
parity: pkg/agent/flowexporter/exporter/ipfix.go, pkg/flowaggregator/infoelements/elements.go
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

MAX_TEXT: Final = 512
"""Bytes of a text that comes from elsewhere; the rest is cut off. Names in Kubernetes have 253 at most."""
MAX_REQUEST_BYTES: Final = 4096
"""Bytes of the requests of one record, as JSON."""
NANOS: Final = 1_000_000_000
"""Nanoseconds of a second."""


class FlowType(IntEnum):
    """Which way a connection goes."""

    UNSPECIFIED = 0
    INTRA_NODE = 1
    INTER_NODE = 2
    TO_EXTERNAL = 3
    FROM_EXTERNAL = 4


class FlowEndReason(IntEnum):
    """Why a record was made (RFC 5102, element 136)."""

    IDLE_TIMEOUT = 1
    ACTIVE_TIMEOUT = 2
    END_OF_FLOW = 3


class BiflowDirection(IntEnum):
    """Criterion by which the source and the destination of a record are chosen (IANA's element 239, RFC 5103)."""

    ARBITRARY = 0
    """Which end has opened the connection is not known: its first packets were not seen."""
    INITIATOR = 1
    """The source has opened the connection."""


class RuleAction(IntEnum):
    """Action of a rule on a connection."""

    NONE = 0
    ALLOW = 1
    DROP = 2
    REJECT = 3


POLICY_TYPES = {"K8sNetworkPolicy": 1, "AntreaNetworkPolicy": 2, "AntreaClusterNetworkPolicy": 3}
"""Numbers of policy types by the names that the controller gives them."""


class FlowRecord(msgspec.Struct, rename="camel", gc=False):
    """One record; counters are those of the connection's first direction, `reverse` those of the other."""

    flow_start_seconds: int = 0
    flow_end_seconds: int = 0
    flow_start_nanos: int = 0
    """Nanoseconds of the start after those seconds; records by gRPC have them. 0: the start is not known to less than a second."""
    flow_end_nanos: int = 0
    flow_end_reason: int = 0
    source_ip: str = msgspec.field(default="", name="sourceIP")
    destination_ip: str = msgspec.field(default="", name="destinationIP")
    source_transport_port: int = 0
    destination_transport_port: int = 0
    protocol_identifier: int = 0
    packet_total_count: int = 0
    octet_total_count: int = 0
    packet_delta_count: int = 0
    octet_delta_count: int = 0
    reverse_packet_total_count: int = 0
    reverse_octet_total_count: int = 0
    reverse_packet_delta_count: int = 0
    reverse_octet_delta_count: int = 0
    source_pod_name: str = ""
    source_pod_namespace: str = ""
    source_node_name: str = ""
    destination_pod_name: str = ""
    destination_pod_namespace: str = ""
    destination_node_name: str = ""
    destination_service_port: int = 0
    destination_service_port_name: str = ""
    ingress_network_policy_name: str = ""
    ingress_network_policy_namespace: str = ""
    ingress_network_policy_type: int = 0
    ingress_network_policy_rule_name: str = ""
    ingress_network_policy_rule_action: int = 0
    egress_network_policy_name: str = ""
    egress_network_policy_namespace: str = ""
    egress_network_policy_type: int = 0
    egress_network_policy_rule_name: str = ""
    egress_network_policy_rule_action: int = 0
    tcp_state: str = ""
    flow_type: int = 0
    egress_name: str = ""
    egress_ip: str = msgspec.field(default="", name="egressIP")
    app_protocol_name: str = ""
    """`http`, `tls` or `dns`, if there are requests."""
    http_vals: str = ""
    """Requests since the record before as JSON, by number of the request in its connection."""
    egress_node_name: str = ""
    proxy_snat_port: int = 0
    destination_cluster_ip: str = msgspec.field(default="", name="destinationClusterIP")
    proxy_snat_ip: str = msgspec.field(default="", name="proxySnatIP")
    destination_service_ip: str = msgspec.field(default="", name="destinationServiceIP")
    # UIDs, which records by gRPC have
    source_pod_uid: str = ""
    destination_pod_uid: str = ""
    source_node_uid: str = ""
    destination_node_uid: str = ""
    destination_service_uid: str = ""
    ingress_network_policy_uid: str = ""
    egress_network_policy_uid: str = ""
    egress_uid: str = ""
    egress_node_uid: str = ""
    # what the aggregator adds
    packet_total_count_from_source_node: int = 0
    octet_total_count_from_source_node: int = 0
    packet_delta_count_from_source_node: int = 0
    octet_delta_count_from_source_node: int = 0
    reverse_packet_total_count_from_source_node: int = 0
    reverse_octet_total_count_from_source_node: int = 0
    reverse_packet_delta_count_from_source_node: int = 0
    reverse_octet_delta_count_from_source_node: int = 0
    packet_total_count_from_destination_node: int = 0
    octet_total_count_from_destination_node: int = 0
    packet_delta_count_from_destination_node: int = 0
    octet_delta_count_from_destination_node: int = 0
    reverse_packet_total_count_from_destination_node: int = 0
    reverse_octet_total_count_from_destination_node: int = 0
    reverse_packet_delta_count_from_destination_node: int = 0
    reverse_octet_delta_count_from_destination_node: int = 0
    flow_end_seconds_from_source_node: int = 0
    flow_end_seconds_from_destination_node: int = 0
    flow_end_nanos_from_source_node: int = 0
    flow_end_nanos_from_destination_node: int = 0
    throughput: int = 0
    reverse_throughput: int = 0
    throughput_from_source_node: int = 0
    reverse_throughput_from_source_node: int = 0
    throughput_from_destination_node: int = 0
    reverse_throughput_from_destination_node: int = 0
    source_pod_labels: str = ""
    """Labels of the Pod as JSON; empty: not asked for, or there is no such Pod."""
    destination_pod_labels: str = ""
    cluster_id: str = msgspec.field(default="", name="clusterId")
    # what it adds in mode Proxy
    original_observation_domain_id: int = 0
    original_exporter_ipv4: str = ""
    original_exporter_ipv6: str = ""
    flow_direction: int = 0
    biflow_direction: int = int(BiflowDirection.INITIATOR)

    @property
    def is_ipv6(self) -> bool:
        """Whether its ends have addresses of IPv6."""
        return ":" in self.source_ip

    @property
    def start(self) -> float:
        """When its connection began, in seconds of the epoch."""
        return self.flow_start_seconds + self.flow_start_nanos / NANOS

    @property
    def end(self) -> float:
        """Up to when it counts, in seconds of the epoch."""
        return self.flow_end_seconds + self.flow_end_nanos / NANOS

    def set_exporter(self, peer: str) -> None:
        """The address from which it came."""
        address = peer.removeprefix("::ffff:")
        version6 = ":" in address
        self.original_exporter_ipv4 = "" if version6 else address
        self.original_exporter_ipv6 = address if version6 else ""
