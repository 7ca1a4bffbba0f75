"""Addresses, networks with holes and port ranges of rules, as terms that a flow can match.

parity: pkg/agent/controller/networkpolicy/pod_reconciler.go ipBlocksToOFAddresses, pkg/agent/openflow/network_policy.go portsToBitRanges
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TYPE_CHECKING

from antrea.openflow import match

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.controlplane import IPBlock, IPNet, Service
    from antrea.openflow.field import Match

    Network = IPv4Network | IPv6Network

PORTS = 1 << 16
PROTOCOLS: dict[str, tuple[Match, Match]] = {
    "TCP": (match.tcp, match.tcp6),
    "UDP": (match.udp, match.udp6),
    "SCTP": (match.sctp, match.sctp6),
}
"""What matches them over IPv4 and over IPv6."""


def address_text(packed: bytes) -> str:
    """An address of 16 bytes, of IPv4 if it is one. Raises ValueError."""
    found = IPv6Address(packed)
    return str(found.ipv4_mapped or found)


def network(net: IPNet) -> Network:
    """Raises ValueError."""
    return ip_network(f"{address_text(net.ip)}/{net.prefix_length}", strict=False)


def networks(block: IPBlock) -> list[Network]:
    """What is left of a network without its holes, in as few networks as that takes."""
    left = [network(block.cidr)]
    for hole in map(network, block.except_):
        left = [part for one in left for part in _without(one, hole)]
    return sorted(left, key=lambda one: int(one.network_address))


def _without(one: Network, hole: Network) -> list[Network]:
    if one.version != hole.version or not one.overlaps(hole):
        return [one]
    if one.prefixlen >= hole.prefixlen:
        return []
    return list(one.address_exclude(hole))  # type: ignore[arg-type]


def masked_ports(first: int, last: int) -> Iterator[tuple[int, int]]:
    """(value, mask) of the fewest aligned blocks that make up the ports `first` to `last`, both included."""
    while first <= last:
        size = first & -first or PORTS
        while size > last - first + 1:
            size >>= 1
        yield first, PORTS - size
        first += size


def service_matches(service: Service, *, v6: bool) -> Iterator[tuple[Match, ...]]:
    """Terms for a protocol and its ports, in one family; one tuple for each flow that it takes."""
    protocol = PROTOCOLS.get(service.protocol or "TCP")
    if protocol is None or isinstance(service.port, str):
        return
    kind = protocol[v6]
    if not service.port:
        yield (kind,)
        return
    for value, mask in masked_ports(service.port, max(service.port, service.end_port or 0)):
        yield (kind, match.tp_dst(value, mask))
