"""Routes, the rules that choose a routing table, and permanent neighbours of this Node.

What we put is recognised after a restart by its protocol number, `PROTOCOL + category` (0x40 to 0x4f, in none of
/etc/iproute2/rt_protos): `ip route show proto 0x44` lists what Egress put. Addresses and neighbours carry it too.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from antrea.rank import Rank

PROTOCOL: Final = 0x40
"""Route protocol of category 0; one more per category."""
CATEGORIES: Final = 16
MAIN: Final = 254
"""The routing table that is used unless a rule names another."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One destination in one table. A route of another's with the same destination, table and metric is taken over."""

    dst: str
    """A network, "10.244.2.0/24", or "0.0.0.0/0" and "::/0" for the default routes."""
    dev: str
    """Empty: the kernel finds the interface by `via`."""
    via: str = ""
    """Empty: the destination is on the link."""
    onlink: bool = False
    """`via` is on the link of `dev` although no address of `dev` is of its network."""
    scope: Literal["global", "link"] = "global"
    """IPv4 only."""
    src: str = ""
    """Source address that the Node itself prefers."""
    table: int = MAIN
    metric: int = 0
    """0 is the kernel's default (IPv6: 1024)."""
    rank: int = Rank.SENDS
    category: int = 0

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.dst, self.table, self.metric)


class RoutingRule(msgspec.Struct, frozen=True, kw_only=True):
    """Packets of one family with a mark are routed by `table`."""

    family: Literal[4, 6]
    mark: int
    mask: int
    table: int
    priority: int
    """Priority in the rule list: 0 is evaluated first; the main table is at 32766."""
    rank: int = Rank.SENDS
    category: int = 0

    @property
    def key(self) -> tuple[int, int, int, int]:
        return (self.family, self.priority, self.mark, self.mask)


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A permanent neighbour: `ip` on the link of `dev` has MAC `mac`, without ARP or NDP."""

    dev: str
    ip: str
    mac: str
    rank: int = Rank.SENDS
    category: int = 0

    @property
    def key(self) -> tuple[str, str]:
        return (self.dev, self.ip)


class ProxyNeighbour(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel answers on the link of `dev` for an IPv6 address that it has elsewhere (sysctl proxy_ndp)."""

    dev: str
    ip: str
    rank: int = Rank.SENDS
    category: int = 0

    @property
    def key(self) -> tuple[str, str]:
        return (self.dev, self.ip)
