"""Traceflow of crd.antrea.io/v1beta1.

Source: upstream pkg/apis/crd/v1beta1/types.go, build/charts/antrea/crds/traceflow.yaml
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from antrea.apis.crd.part import Address, Byte, CrdStruct, Metadata, Port
from antrea.apis.schema import doc

Word: TypeAlias = Annotated[int, doc(minimum=0, maximum=65535)]

DIVERSION: Final = "TrafficControl"
"""Component that copies packets aside, or redirects them."""


class TraceSource(CrdStruct, frozen=True):
    """Where the packet comes from."""

    pod: Annotated[str, doc("Name of the Pod.")] = ""
    namespace: Annotated[str, doc("Namespace of the Pod; default if empty.")] = ""
    ip: Annotated[Address, doc("An address, for live traffic only.")] = ""


class TraceDestination(CrdStruct, frozen=True):
    """Where the packet goes."""

    pod: Annotated[str, doc("Name of the Pod.")] = ""
    service: Annotated[str, doc("Name of the Service.")] = ""
    namespace: Annotated[str, doc("Namespace of the Pod or Service; default if empty.")] = ""
    ip: Annotated[Address, doc("An address.")] = ""


class IPHeader(CrdStruct, frozen=True):
    """Header of IPv4."""

    protocol: Annotated[Byte | None, doc("Number of the protocol.")] = None
    ttl: Annotated[Byte | None, doc("Time to live.")] = None
    flags: Annotated[int | None, doc("Flags of fragments.", minimum=0, maximum=7)] = None


class IPv6Header(CrdStruct, frozen=True):
    """Header of IPv6."""

    next_header: Annotated[Word | None, doc("Number of the protocol.")] = None
    hop_limit: Annotated[Word | None, doc("Time to live.")] = None


class IcmpHeader(CrdStruct, frozen=True):
    """Header of an ICMP echo request."""

    id: Annotated[Word, doc("Identifier.")] = 0
    sequence: Annotated[Word, doc("Sequence number.")] = 0


class UdpHeader(CrdStruct, frozen=True):
    """Header of UDP."""

    src_port: Annotated[Port | None, doc("Source port.")] = None
    dst_port: Annotated[Port | None, doc("Destination port.")] = None


class TcpHeader(CrdStruct, frozen=True):
    """Header of TCP."""

    src_port: Annotated[Port | None, doc("Source port.")] = None
    dst_port: Annotated[Port | None, doc("Destination port.")] = None
    flags: Annotated[Byte | None, doc("Flags; 2 is SYN.")] = None


class TransportHeader(CrdStruct, frozen=True):
    """Header of the transport protocol; one of these."""

    icmp: IcmpHeader | None = None
    udp: UdpHeader | None = None
    tcp: TcpHeader | None = None


class Packet(CrdStruct, frozen=True):
    """Headers of the packet."""

    ip_header: IPHeader | None = None
    ipv6_header: IPv6Header | None = None
    transport_header: TransportHeader = TransportHeader()


class TraceflowSpec(CrdStruct, frozen=True):
    """The packet that is traced."""

    source: TraceSource = TraceSource()
    destination: TraceDestination = TraceDestination()
    packet: Packet = Packet()
    live_traffic: Annotated[bool, doc("Whether a packet of real traffic is traced.")] = False
    dropped_only: Annotated[bool, doc("Whether only a dropped packet of live traffic counts.")] = False
    timeout: Annotated[
        int | None, doc("Seconds until it fails; 20 if not given.", minimum=1, maximum=300)
    ] = None


class Observation(CrdStruct, frozen=True):
    """Action of one component on the packet."""

    component: Annotated[str, doc("SpoofGuard, LB, Routing, NetworkPolicy, Forwarding or Egress.")] = ""
    component_info: Annotated[str, doc("Where in the component, such as a table.")] = ""
    action: Annotated[str, doc("What it did, such as Forwarded, Delivered or Dropped.")] = ""
    pod: Annotated[str, doc("Pod that got it, as namespace/name.")] = ""
    dst_mac: Annotated[str, doc("Destination MAC address.")] = ""
    network_policy: Annotated[str, doc("Policy that decided.")] = ""
    network_policy_rule: Annotated[str, doc("Rule that decided.")] = ""
    ttl: Annotated[Byte, doc("Time to live.")] = 0
    translated_src_ip: Annotated[str, doc("Source after translation.")] = ""
    translated_dst_ip: Annotated[str, doc("Destination after translation.")] = ""
    tunnel_dst_ip: Annotated[str, doc("Other end of the tunnel.")] = ""
    egress_ip: Annotated[str, doc("Egress IP that it left with.")] = ""
    egress: Annotated[str, doc("Egress that chose that.")] = ""
    egress_node: Annotated[str, doc("Node that it left from.")] = ""
    egress_ports: Annotated[
        str, doc("Source ports of the Pod at the address: 1024-1535; empty: any port.")
    ] = ""
    src_pod_ip: Annotated[str, doc("Address of the source Pod.")] = ""
    table: Annotated[str, doc("Table of the switch in which it was decided.")] = ""
    flow: Annotated[str, doc("Flow of that table; empty if it cannot be told which of several it was.")] = ""
    explanation: Annotated[str, doc("Why it is so, by the objects of the cluster.")] = ""


class NodeResult(CrdStruct, frozen=True):
    """Observations on one Node."""

    node: Annotated[str, doc("Name of the Node.")] = ""
    role: Annotated[str, doc("Its part in it.")] = ""
    timestamp: Annotated[int, doc("When, in seconds since 1970.")] = 0
    observations: Annotated[tuple[Observation, ...], doc("Steps, in order.")] = ()


class CapturedPacket(CrdStruct, frozen=True):
    """The packet of live traffic."""

    src_ip: Annotated[str, doc("Source address.")] = ""
    dst_ip: Annotated[str, doc("Destination address.")] = ""
    length: Annotated[Word, doc("Bytes.")] = 0
    ip_header: IPHeader | None = None
    ipv6_header: IPv6Header | None = None
    transport_header: TransportHeader = TransportHeader()


class TraceflowStatus(CrdStruct, frozen=True):
    """Result of the trace."""

    phase: Annotated[str, doc("Running, Succeeded or Failed; empty before.")] = ""
    reason: Annotated[str, doc("Why it failed.")] = ""
    start_time: Annotated[str, doc("When it started, RFC 3339.")] = ""
    dataplane_tag: Annotated[int, doc("Mark of the packet.")] = 0
    results: Annotated[tuple[NodeResult, ...], doc("By Node.")] = ()
    captured_packet: CapturedPacket | None = None


class Traceflow(CrdStruct, frozen=True):
    """The way of a packet through the cluster."""

    spec: TraceflowSpec
    metadata: Metadata = Metadata()
    status: TraceflowStatus = TraceflowStatus()
