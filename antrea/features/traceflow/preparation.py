"""Packet of a Traceflow: made to be injected, or compared with packets of live traffic.

parity: pkg/agent/controller/traceflow/traceflow_controller.go preparePacket
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis.core import Pod, Service
from antrea.errors import Invalid
from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6
from antrea.facts.ovs import PodInterface
from antrea.openflow.frame import HOPS, SYN, Headers
from antrea.openflow.packet import ICMP, ICMPV6, TCP, UDP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.apis.crd.traceflow import TcpHeader, UdpHeader
    from antrea.engine import Facts
    from antrea.features.traceflow.trace import RunningTrace

Target = Pod | Service | None
"""Object of the destination, if it was read from the API."""
PROTOCOLS = {"TCP": TCP, "UDP": UDP}


class PreparedTrace(Fact, frozen=True):
    """The packet of a running Traceflow that begins at a Pod of this Node."""

    name: str
    uid: str
    interface: str
    """Key of the PodInterface."""
    ofport: int
    headers: Headers
    """Headers to be sent; for live traffic those to compare: empty or 0 is anything."""
    nearby: bool = False
    """Whether the destination is a Pod of this Node."""

    @property
    def key(self) -> str:
        return self.name


def prepared(facts: Facts, trace: RunningTrace, pod: PodInterface, target: Target) -> PreparedTrace:
    """Prepare the packet; `target` is the Pod or Service of the destination. Raises Invalid, whose `why` is for the status."""
    addressed = _addressed(facts, trace, pod, target)
    headers = _transport(trace, addressed)
    nearby = bool(headers.destination_mac) and not trace.receiver_only
    return PreparedTrace(trace.name, trace.uid, pod.key, pod.ofport, headers, nearby)


def _addressed(facts: Facts, trace: RunningTrace, pod: PodInterface, target: Target) -> Headers:
    """Return headers with addresses, and the protocol of a Service."""
    live, to = trace.spec.live_traffic, trace.spec.destination
    if trace.receiver_only:
        source = trace.spec.source.ip
        if source and is_ipv6(source) != trace.ipv6:
            raise Invalid("spec.source.ip", "source IP does not match the IP header family")
        return Headers(source=source, destination_mac=pod.mac, tcp_flags=0)
    source_ip = "" if live else _of_family(trace, pod.ips, "source Pod")
    headers = Headers(source=source_ip, source_mac="" if live else pod.mac, tcp_flags=0 if live else SYN)
    if to.ip:
        if is_ipv6(to.ip) != trace.ipv6:
            raise Invalid("spec.destination.ip", "destination IP does not match the IP header family")
        return _towards(facts, headers, to.ip)
    if isinstance(target, Pod):
        ips = [pod_ip.ip for pod_ip in target.status.pod_ips]
        return _towards(facts, headers, _of_family(trace, ips, "destination Pod"))
    if isinstance(target, Service):
        return _to_service(trace, headers, target)
    if live:
        return headers
    raise Invalid("spec.destination", "destination is not specified")


def _of_family(trace: RunningTrace, ips: Iterable[str], whose: str) -> str:
    for candidate_ip in ips:
        if is_ipv6(candidate_ip) == trace.ipv6:
            return candidate_ip
    raise Invalid("spec", f"{whose} does not have an IPv{6 if trace.ipv6 else 4} address")


def _towards(facts: Facts, headers: Headers, address: str) -> Headers:
    """Return headers towards an address; a Pod of this Node gets the frame as it is sent."""
    pods = facts.by(PodInterface, "ip", address) if headers.source else []
    mac = pods[0].mac if pods else ""
    return msgspec.structs.replace(headers, destination=address, destination_mac=mac)


def _to_service(trace: RunningTrace, headers: Headers, service: Service) -> Headers:
    ips = [cluster_ip for cluster_ip in service.spec.cluster_ips if cluster_ip not in ("", "None")]
    if not ips:
        raise Invalid("spec.destination.service", "destination Service does not have a ClusterIP")
    address = next((cluster_ip for cluster_ip in ips if is_ipv6(cluster_ip) == trace.ipv6), "")
    if not address:
        family = 6 if trace.ipv6 else 4
        raise Invalid(
            "spec.destination.service", f"destination Service does not have an IPv{family} ClusterIP"
        )
    headers = msgspec.structs.replace(headers, destination=address)
    if trace.spec.live_traffic:
        return headers
    if not service.spec.ports:
        raise Invalid("spec.destination.service", "destination Service does not have any ports")
    first = service.spec.ports[0]
    protocol = PROTOCOLS.get(first.protocol, 0)
    return msgspec.structs.replace(headers, protocol=protocol, destination_port=first.port)


def _transport(trace: RunningTrace, headers: Headers) -> Headers:
    """Add the transport header: TCP precedes UDP, ICMP, and the protocol of the IP header; the default is ICMP."""
    spec, live = trace.spec.packet, trace.spec.live_traffic
    protocol, hops, flags = headers.protocol, 0, 0
    if spec.ipv6_header is not None:
        given = spec.ipv6_header.next_header
        protocol, hops = protocol if given is None else given & 0xFF, spec.ipv6_header.hop_limit or 0
    elif spec.ip_header is not None:
        protocol = spec.ip_header.protocol or protocol
        hops, flags = spec.ip_header.ttl or 0, spec.ip_header.flags or 0
    hops = hops if 0 < hops < 256 else HOPS
    headers = msgspec.structs.replace(headers, protocol=protocol, hops=hops, fragment_flags=flags)
    transport = spec.transport_header
    if transport.tcp is not None:
        sent = SYN if transport.tcp.flags is None else transport.tcp.flags
        return msgspec.structs.replace(
            _ported(headers, transport.tcp), protocol=TCP, tcp_flags=0 if live else sent
        )
    if transport.udp is not None:
        return msgspec.structs.replace(_ported(headers, transport.udp), protocol=UDP)
    if transport.icmp is not None or protocol in (ICMP, ICMPV6) or (not protocol and not live):
        echo = transport.icmp
        return msgspec.structs.replace(
            headers, protocol=ICMPV6 if trace.ipv6 else ICMP,
            icmp_id=echo.id if echo else 0, icmp_sequence=echo.sequence if echo else 0,
        )  # fmt: skip
    return headers


def _ported(headers: Headers, given: TcpHeader | UdpHeader) -> Headers:
    """Add the given ports; the Service's is kept."""
    return msgspec.structs.replace(
        headers,
        source_port=given.src_port or 0,
        destination_port=given.dst_port or headers.destination_port,
    )
