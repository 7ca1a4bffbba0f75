"""Parsed and validated request of `antctl trace-packet`; only single terms of a packet reach OVS.

Source: upstream pkg/agent/apiserver/handlers/ovstracing, pkg/ovs/ovsctl Trace. Unlike upstream's, the family also follows from
an address, a destination of the other family is refused, and the flow may hold MAC and IPv6 addresses and masks.
"""

from __future__ import annotations

import re
import zlib
from ipaddress import ip_address
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

_IPV4 = frozenset({"ip", "icmp", "tcp", "udp", "sctp"})
_IPV6 = frozenset({"ipv6", "icmp6", "tcp6", "udp6", "sctp6"})
_NOT_IP = frozenset({"arp", "rarp", "dl_type", "eth_type", "mpls", "mplsm"})
_TERM = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*(=[A-Za-z0-9_.\-:/+|]+)?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.\-]{0,251}[a-z0-9])?")
"""A Kubernetes name, which can be part of a path."""
_SOURCES = {4: ("nw_src", "ip_src"), 6: ("ipv6_src",)}
_DESTINATIONS = {4: ("nw_dst", "ip_dst"), 6: ("ipv6_dst",)}


class Peer(msgspec.Struct, frozen=True):
    """An end of the packet: a Pod or Service, else an address, else a port of the bridge."""

    namespace: str = ""
    name: str = ""
    ip: str = ""
    port: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else self.ip or self.port


class TraceRequest(msgspec.Struct, frozen=True):
    """Requested packet; `family` is 4 or 6, `terms` are those of --flow such as tcp or tcp_dst=80."""

    family: int
    port: Peer | None = None
    source: Peer | None = None
    destination: Peer | None = None
    terms: tuple[str, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """Names of the fields and protocols of `terms`."""
        return frozenset(term.partition("=")[0] for term in self.terms)

    @property
    def is_ip(self) -> bool:
        """Whether the packet may have addresses; a packet without a protocol is an IP packet."""
        return not self.keys & _NOT_IP


class Entered(msgspec.Struct, frozen=True):
    """The packet where it enters the bridge; empty texts are left out."""

    in_port: int
    src_mac: str
    dst_mac: str = ""
    src_ip: str = ""
    dst_ip: str = ""
    balanced: bool = False
    """Whether groups choose Endpoints by the hash of the datapath: without one, ofproto/trace ends at the group."""


def request_of(query: Mapping[str, str]) -> TraceRequest:
    """Parse port, source, destination, flow and addressFamily. Raises Invalid, which names the parameter at fault."""
    terms = _terms(query.get("flow", ""))
    port, source, destination = (
        _peer(key, field, query[key]) if query.get(key) else None
        for key, field in (("port", "input port"), ("source", "source"), ("destination", "destination"))
    )
    if port and port.ip:
        raise Invalid("port", f"invalid input port format: {port} is an address, not a port or a Pod")
    family = _family(query.get("addressFamily", ""), TraceRequest(4, port, source, destination, terms))
    request = TraceRequest(family, port, source, destination, terms)
    _refuse_contradictions(request)
    return request


def _peer(key: str, field: str, text: str) -> Peer:
    namespace, slash, name = text.partition("/")
    if slash:
        if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
            raise Invalid(key, f"invalid {field} format: {text!r} is not <Namespace>/<name>")
        return Peer(namespace, name)
    try:
        address = ip_address(text)
    except ValueError:
        return Peer(port=text)
    if getattr(address, "scope_id", None):
        raise Invalid(key, f"invalid {field} format: {text!r} has a zone")
    return Peer(ip=str(getattr(address, "ipv4_mapped", None) or address))


def _terms(flow: str) -> tuple[str, ...]:
    if not flow:
        return ()
    terms = tuple(part.strip() for part in flow.split(","))
    for term in terms:
        if not _TERM.fullmatch(term):
            raise Invalid("flow", f"invalid flow format: {term!r} is neither a protocol nor <field>=<value>")
    return terms


def _family(requested: str, request: TraceRequest) -> int:
    """Return the address family of the query, or the first that a field implies."""
    if requested not in ("", "4", "6"):
        raise Invalid("addressFamily", f"invalid addressFamily {requested!r}: it must be 4 or 6")
    families = [("request", int(requested))] if requested else []
    families += [
        ("flow", family) for family, protocols in ((4, _IPV4), (6, _IPV6)) if request.keys & protocols
    ]
    for field, peer in (("source", request.source), ("destination", request.destination)):
        if peer and peer.ip:
            families.append((field, ip_address(peer.ip).version))
    for field, family in families:
        if family != families[0][1]:
            raise Invalid(
                field,
                f"address family incompatible between {field} and {families[0][0]}: IPv{family} and IPv{families[0][1]}",
            )
    return families[0][1] if families else 4


def _refuse_contradictions(request: TraceRequest) -> None:
    if request.port and "in_port" in request.keys:
        raise Invalid("flow", "duplicated 'in_port' in flow: --port sets it, too")
    if not request.is_ip and (request.source or request.destination):
        raise Invalid("flow", "source and destination must not be specified for non-IP packet")
    for peer, field, keys in (
        (request.source, "source", _SOURCES[request.family]),
        (request.destination, "destination", _DESTINATIONS[request.family]),
    ):
        for key in keys:
            if peer and key in request.keys:
                raise Invalid("flow", f"duplicated '{key}' in flow: --{field} sets it, too")


def packet(request: TraceRequest, entered: Entered) -> str:
    """Write the flow that ofproto/trace reads; protocols come before the fields that need them.

    in_port=3,dl_src=0a:..:07,dl_dst=0a:..:08,tcp,tcp_dst=80,nw_ttl=64,nw_src=10.10.0.7,nw_dst=10.10.0.8
    """
    keys = request.keys
    has_address = bool(entered.src_ip or entered.dst_ip)
    protocol = () if not has_address or keys & (_IPV4 | _IPV6) else ("ip" if request.family == 4 else "ipv6",)
    fields: tuple[tuple[tuple[str, ...], str], ...] = (
        (("in_port",), str(entered.in_port)),
        (("dl_src", "eth_src"), entered.src_mac),
        (("dl_dst", "eth_dst"), entered.dst_mac),
        (("nw_ttl", "ip_ttl"), "64" if has_address else ""),
        (_SOURCES[request.family], entered.src_ip),
        (_DESTINATIONS[request.family], entered.dst_ip),
        (("dp_hash",), _hash(request, entered) if entered.balanced and has_address else ""),
    )
    written = [f"{names[0]}={value}" if value and not keys & set(names) else "" for names, value in fields]
    return ",".join(filter(None, [*written[:3], *protocol, *request.terms, *written[3:]]))


def _hash(request: TraceRequest, entered: Entered) -> str:
    """Hash the packet, equal for equal packets as in the datapath: another source port may get another Endpoint."""
    packet = ",".join((entered.src_ip, entered.dst_ip, *request.terms))
    return hex(zlib.crc32(packet.encode()) or 1)
