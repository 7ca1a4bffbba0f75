"""stats.antrea.io/v1alpha1: counters that are summed over Nodes since this controller started.

Source: upstream pkg/apis/stats/v1alpha1/types.go (field names and meaning).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from antrea.apis.meta import Int64, ObjectMetadata, Wire

GROUP, VERSION = "stats.antrea.io", "v1alpha1"


class TrafficStats(Wire, frozen=True, kw_only=True):
    """Totals."""

    packets: Annotated[Int64, Meta(description="Packets that matched.")] = 0
    bytes: Annotated[Int64, Meta(description="Bytes of these packets.")] = 0
    sessions: Annotated[Int64, Meta(description="Connections that matched.")] = 0

    def __add__(self, other: TrafficStats) -> TrafficStats:
        return TrafficStats(
            packets=self.packets + other.packets,
            bytes=self.bytes + other.bytes,
            sessions=self.sessions + other.sessions,
        )


class RuleTrafficStats(Wire, frozen=True, kw_only=True):
    """Totals of one rule."""

    name: Annotated[str, Meta(description="Name of the rule.")] = ""
    traffic_stats: Annotated[TrafficStats, Meta(description="Its totals.")] = TrafficStats()


class NetworkPolicyStats(Wire, frozen=True, kw_only=True):
    """Traffic that a Kubernetes NetworkPolicy matched."""

    metadata: ObjectMetadata
    traffic_stats: Annotated[TrafficStats, Meta(description="Totals of the policy.")]


class AntreaClusterNetworkPolicyStats(Wire, frozen=True, kw_only=True):
    """Traffic that an Antrea ClusterNetworkPolicy matched."""

    metadata: ObjectMetadata
    traffic_stats: Annotated[TrafficStats, Meta(description="Totals of the policy.")]
    rule_traffic_stats: Annotated[tuple[RuleTrafficStats, ...], Meta(description="Totals of its rules.")] = ()


class AntreaNetworkPolicyStats(Wire, frozen=True, kw_only=True):
    """Traffic that an Antrea NetworkPolicy matched."""

    metadata: ObjectMetadata
    traffic_stats: Annotated[TrafficStats, Meta(description="Totals of the policy.")]
    rule_traffic_stats: Annotated[tuple[RuleTrafficStats, ...], Meta(description="Totals of its rules.")] = ()


class EgressStats(Wire, frozen=True, kw_only=True):
    """Traffic that Pods sent to outside by an Egress: our own kind."""

    metadata: ObjectMetadata
    traffic_stats: Annotated[
        TrafficStats, Meta(description="Packets and bytes; connections are not counted.")
    ]


class PodReference(Wire, frozen=True, kw_only=True):
    """A Pod by name."""

    name: Annotated[str, Meta(description="Name of the Pod.")] = ""
    namespace: Annotated[str, Meta(description="Namespace of the Pod.")] = ""


class MulticastGroup(Wire, frozen=True, kw_only=True):
    """The Pods that joined a multicast group; its name is the group's IP."""

    metadata: ObjectMetadata
    group: Annotated[str, Meta(description="IP of the group.")] = ""
    pods: Annotated[tuple[PodReference, ...], Meta(description="Pods that joined it.")]


class TargetIPLatencyStats(Wire, frozen=True, kw_only=True):
    """Round trips to one address; times are RFC 3339, null before the first."""

    target_ip: Annotated[str, Meta(description="The address.")] = msgspec.field(default="", name="targetIP")
    last_send_time: Annotated[str | None, Meta(description="When the last probe was sent.")] = None
    last_recv_time: Annotated[str | None, Meta(description="When the last answer came.")] = None
    last_measured_rtt_nanoseconds: Annotated[
        Int64, Meta(description="Last round trip time in nanoseconds.")
    ] = msgspec.field(default=0, name="lastMeasuredRTTNanoseconds")


class PeerNodeLatencyStats(Wire, frozen=True, kw_only=True):
    """Round trips to one Node."""

    node_name: Annotated[str, Meta(description="The Node.")] = ""
    target_ip_latency_stats: Annotated[
        tuple[TargetIPLatencyStats, ...], Meta(description="One element per address of the Node.")
    ] = msgspec.field(default=(), name="targetIPLatencyStats")


class NodeLatencyStats(Wire, frozen=True, kw_only=True):
    """Round trips from the Node of the same name to all others."""

    metadata: ObjectMetadata = ObjectMetadata()
    peer_node_latency_stats: Annotated[
        tuple[PeerNodeLatencyStats, ...], Meta(description="One element per other Node.")
    ] = ()
