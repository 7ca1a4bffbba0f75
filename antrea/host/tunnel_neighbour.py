"""The next hop of a tunnel that OVS itself puts together: one whose MAC address it has to know before the first packet."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface, ip_network
from typing import TYPE_CHECKING, ClassVar

import msgspec

from antrea.rank import Rank

if TYPE_CHECKING:
    from antrea.facts.node import Transport


class TunnelNeighbour(msgspec.Struct, frozen=True):
    """An entry of userspace OVS for the MAC address of `ip` on the link of `dev`, whichever it is, unlike `Neighbour`.

    Without it OVS drops the packet and asks. It misses an answer like one it has seen in the last ten seconds, and then
    drops for as long as packets come.
    """

    rank: ClassVar[int] = Rank.RECEIVES
    category: ClassVar[int] = 0

    dev: str
    ip: str

    @property
    def key(self) -> tuple[str, str]:
        return (self.dev, self.ip)


def next_hop(link: Transport, end: str) -> str | None:
    """Whom a packet to `end` is handed on the link: `end` itself or a router; None if no route leads there."""
    address = ip_address(end)
    if any(address in ip_interface(own_address).network for own_address in link.addresses):
        return end
    neighbours = [
        (ip_network(destination or _everything(via)).prefixlen, via)
        for destination, via in link.routes
        if address in ip_network(destination or _everything(via))
    ]
    return max(neighbours, key=lambda route: route[0])[1] if neighbours else None


def _everything(via: str) -> str:
    return "::/0" if ":" in via else "0.0.0.0/0"
