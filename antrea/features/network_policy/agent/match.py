"""Addresses, networks with exceptions and port ranges of rules, as terms that a flow can match.

parity: pkg/agent/controller/networkpolicy/pod_reconciler.go ipBlocksToOFAddresses, pkg/agent/openflow/network_policy.go
portsToBitRanges
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Address, IPv6Network
from typing import TYPE_CHECKING

from antrea.apis.controlplane import IPBlock
from antrea.features.network_policy.hole import IPV4, pieces
from antrea.openflow import match
from antrea.openflow.match import PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.apis.controlplane import IPNet, Service
    from antrea.openflow.field import Match

    Network = IPv4Network | IPv6Network

PORTS = 1 << 16


def address_text(packed: bytes) -> str:
    """Return an address of 16 bytes as text, of IPv4 if it is one. Raises ValueError."""
    address = IPv6Address(packed)
    return str(address.ipv4_mapped or address)


def network(net: IPNet) -> Network:
    """Return the network of `net`. Raises ValueError."""
    (parsed,) = networks(IPBlock(cidr=net))
    return parsed


def networks(block: IPBlock) -> Iterator[Network]:
    """Return a network without its exceptions, as the fewest networks, in their order. Raises ValueError."""
    for width, first, bits in pieces(block):
        yield IPv4Network((first, bits)) if width == IPV4 else IPv6Network((first, bits))


def masked_ports(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield (value, mask) of the fewest aligned blocks that make up the ports `first` to `last`, both included."""
    while first <= last:
        size = first & -first or PORTS
        while size > last - first + 1:
            size >>= 1
        yield first, PORTS - size
        first += size


def service_matches(service: Service, *, v6: bool) -> Iterator[tuple[Match, ...]]:
    """Yield terms for a protocol and its ports, in one family; one tuple for each flow."""
    protocol = service.protocol or "TCP"
    if protocol == "ICMP":
        yield _icmp(service, v6=v6)
    elif protocol in PROTOCOLS and not isinstance(service.port, str):
        kind = PROTOCOLS[protocol][v6]
        for to in _ports(match.tp_dst, service.port, service.end_port):
            for source in _ports(match.tp_src, service.src_port, service.src_end_port):
                yield (kind, *to, *source)


def _icmp(service: Service, *, v6: bool) -> tuple[Match, ...]:
    kind = () if service.icmp_type is None else (match.icmp_type(service.icmp_type),)
    code = () if service.icmp_code is None else (match.icmp_code(service.icmp_code),)
    return (match.icmp6 if v6 else match.icmp, *kind, *code)


def _ports(
    term: Callable[[int, int], Match], first: int | None, last: int | None
) -> Iterator[tuple[Match, ...]]:
    """Yield terms for ports; no number, and 0, is every port."""
    if not first:
        yield ()
        return
    for value, mask in masked_ports(first, max(first, last or 0)):
        yield (term(value, mask),)
