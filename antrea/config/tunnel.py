"""Tunnels between Nodes by `tunnelType`: the port that they come in by, and the bytes that they add to a packet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection


class TunnelProtocol(NamedTuple):
    """A tunnel protocol that can be configured."""

    transport: str
    """Protocol of the outer IP header, as nftables and iptables name it."""
    port: int
    """Destination port unless `tunnelPort` is set; 0: the protocol has none."""
    overhead: int
    """Bytes of outer IPv4, tunnel and inner Ethernet header. parity: pkg/agent/config"""
    module: str
    """Kernel module that the system datapath needs for it."""


TUNNELS = {
    "geneve": TunnelProtocol("udp", 6081, 50, "geneve"),
    "vxlan": TunnelProtocol("udp", 4789, 50, "vxlan"),
    "gre": TunnelProtocol("gre", 0, 42, "ip_gre"),
}
IPV6_OVERHEAD = 20
"""Bytes that an outer IPv6 header is longer than one of IPv4."""


def tunnel_port_number(kind: str, configured: int) -> int:
    """Return the UDP port that tunnels of a type come in by; 0: they have none."""
    protocol = TUNNELS.get(kind)
    return (configured or protocol.port) if protocol and protocol.port else 0


def tunnel_overhead(kind: str, ends: Collection[str]) -> int:
    """Return the bytes that a packet grows by in a tunnel between Nodes with addresses `ends`; IPv4 is used where there is any."""
    over_ipv6 = bool(ends) and all(":" in end for end in ends)
    return TUNNELS[kind].overhead + (IPV6_OVERHEAD if over_ipv6 else 0)
