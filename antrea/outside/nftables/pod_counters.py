"""Counts packets of Pods by nftables, for a datapath whose connection tracking counts nothing: OVS's own in user space.

Each packet from a Pod and to one is counted at the interface of the Pod in the Node's network namespace, by its addresses and
ports. The sets forget what was silent for two minutes; what they had counted is kept here for as long as the connection is
tracked.
"""

from __future__ import annotations

import asyncio
import re
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.errors import Unavailable
from antrea.openflow.tracked_connection import PROTOCOLS
from antrea.outside.nftables.libnftables import NftError, connect

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from antrea.openflow.tracked_connection import TrackedConnection
    from antrea.outside.nftables.libnftables import Nft

TABLE: Final = "antrea_flows"
PRIORITY: Final = -10
"""Before the chains that let no packet of a Pod into the Node's own stack: these drop all."""
MOST: Final = 65536
"""Entries of a set: one direction, one family; packets of more are not counted."""
ETHERNET: Final = 14
"""Octets of its header, which a packet still has before it goes out."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_KEYS: Final = {"4": "ip saddr . ip daddr", "6": "ip6 saddr . ip6 daddr"}
_HOOKS: Final = {"up": "ingress", "down": "egress"}
_ELEMENT: Final = re.compile(
    r"([0-9a-f.:]+) \. ([0-9a-f.:]+) \. (\w+) \. (\d+) \. (\d+) (?:timeout \S+ expires \S+ )?"
    r"counter packets (\d+) bytes (\d+)"
)
Ends = tuple[int, str, int, str, int]
"""Protocol, source and port, destination and port, of a packet."""


class Counted(NamedTuple):
    """Packets and octets of IP."""

    packets: int = 0
    octets: int = 0


class _Total:
    """Of one direction; what the set had before it forgot is in `before`."""

    __slots__ = ("before", "now")

    def __init__(self) -> None:
        self.before, self.now = Counted(), Counted()

    @property
    def value(self) -> Counted:
        return Counted(self.before.packets + self.now.packets, self.before.octets + self.now.octets)

    def take(self, found: Counted) -> None:
        if found.packets < self.now.packets:
            self.before = self.value
        self.now = found

    def begin_anew(self) -> None:
        self.before = Counted(-self.now.packets, -self.now.octets)


class PodCounters:
    """In the network namespace of the thread that makes it."""

    def __init__(self, nft: Nft | None = None) -> None:
        self._nft = nft or connect(stateless=False)
        self._lock = threading.Lock()
        """A thread whose task was cancelled goes on for a while."""
        self._chains: dict[str, int] = {}
        """Numbers of those that are there, by interface."""
        self._number = 0
        self.trouble = ""
        """Why nothing is counted at some interface; empty: it is at all."""
        self._totals: dict[str, dict[Ends, _Total]] = {way: {} for way in _HOOKS}

    async def follow(self, interfaces: Iterable[str]) -> None:
        """Count at these interfaces and no others. Raises Unavailable: nftables takes no table at all."""
        await asyncio.to_thread(self._follow, {name for name in interfaces if _NAME.fullmatch(name)})

    async def read(self) -> None:
        """Take in what was counted. Raises Unavailable."""
        text = {way: await asyncio.to_thread(self._read, way) for way in _HOOKS}
        for way, sets in text.items():
            totals, seen = self._totals[way], set[Ends]()
            for found in _ELEMENT.finditer(sets):
                source, destination, protocol, sport, dport, packets, octets = found.groups()
                ends = (PROTOCOLS.get(protocol, 0), source, int(sport), destination, int(dport))
                header = ETHERNET if way == "down" else 0
                seen.add(ends)
                count = Counted(int(packets), int(octets) - header * int(packets))
                totals.setdefault(ends, _Total()).take(count)
            for ends in totals.keys() - seen:
                totals[ends].take(Counted())

    def apply(self, found: Iterable[TrackedConnection], local: Collection[str]) -> list[TrackedConnection]:
        """All tracked connections with their counts; `local` are addresses of Pods of this Node. What is tracked no more is forgotten."""
        tracked: set[Ends] = set()
        made = [self._counted(one, one.key[1] in local, tracked) for one in found]
        self._keep(tracked)
        return made

    def close(self) -> None:
        """Count nothing any more."""
        self._run(f"add table netdev {TABLE}\ndelete table netdev {TABLE}\n")
        self._chains = {}

    def _counted(
        self, found: TrackedConnection, source_is_here: bool, tracked: set[Ends]
    ) -> TrackedConnection:
        """At the source's interface if that is on this Node, else at the destination's."""
        protocol, source, sport, server, port, _ = found.key
        if source_is_here:
            there = (protocol, source, sport, found.destination, found.port)
            back = (protocol, found.destination, found.port, source, sport)
            ways = ("up", there), ("down", back)
        else:
            there = (protocol, found.source_seen, found.source_port_seen, server, port)
            back = (protocol, server, port, found.source_seen, found.source_port_seen)
            ways = ("down", there), ("up", back)
        tracked |= {there, back}
        (packets, octets), (reply, reply_octets) = (
            total.value if (total := self._totals[way].get(ends)) else Counted() for way, ends in ways
        )
        return found._replace(packets=packets, octets=octets, reply_packets=reply, reply_octets=reply_octets)

    def _keep(self, tracked: Collection[Ends]) -> None:
        """What is no packet of these connections is counted from 0 when it is one again, or forgotten."""
        for totals in self._totals.values():
            for ends in [ends for ends in totals if ends not in tracked]:
                if totals[ends].now.packets:
                    totals[ends].begin_anew()
                else:
                    del totals[ends]

    def _follow(self, wanted: set[str]) -> None:
        if not self._number:
            self._run(_table())
        for name in self._chains.keys() - wanted:
            number = self._chains.pop(name)
            for way in _HOOKS:
                # the kernel may have removed it with the interface
                self._try(f"delete chain netdev {TABLE} {way}{number}\n")
        self.trouble = ""
        for name in wanted - self._chains.keys():
            self._number += 1
            failed = self._try("".join(_chain(way, self._number, name) for way in _HOOKS))
            if failed:
                self.trouble = f"interface {name}: {failed}"
            else:
                self._chains[name] = self._number
        self._number = max(self._number, 1)

    def _read(self, way: str) -> str:
        try:
            with self._lock:
                return "".join(self._nft.run(f"list set netdev {TABLE} {way}{family}\n") for family in _KEYS)
        except NftError as why:
            raise Unavailable(f"counters of Pods: {why}") from why

    def _run(self, commands: str) -> None:
        try:
            with self._lock:
                self._nft.run(commands)
        except NftError as why:
            raise Unavailable(f"counters of Pods: {why}") from why

    def _try(self, commands: str) -> str:
        """Why they failed; empty: they have not."""
        try:
            self._run(commands)
        except Unavailable as why:
            return str(why)
        return ""


def _table() -> str:
    """Without what an agent before this one has counted."""
    sets = "".join(
        f"add set netdev {TABLE} {way}{family} {{ typeof {key} . meta l4proto . th sport . th dport; "
        f"flags dynamic,timeout; timeout 2m; size {MOST}; counter; }}\n"
        for way in _HOOKS
        for family, key in _KEYS.items()
    )
    return f"add table netdev {TABLE}\ndelete table netdev {TABLE}\nadd table netdev {TABLE}\n{sets}"


def _chain(way: str, number: int, interface: str) -> str:
    chain = f"netdev {TABLE} {way}{number}"
    made = (
        f'add chain {chain} {{ type filter hook {_HOOKS[way]} device "{interface}" priority {PRIORITY}; }}\n'
    )
    rules = (
        f"add rule {chain} meta protocol {'ip' if family == '4' else 'ip6'} meta l4proto {{ tcp, udp, sctp }} "
        f"update @{way}{family} {{ {key} . meta l4proto . th sport . th dport }}\n"
        for family, key in _KEYS.items()
    )
    return made + "".join(rules)
