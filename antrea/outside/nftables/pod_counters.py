"""Counts packets of Pods by nftables, for a datapath whose connection tracking counts nothing: OVS's own in user space.

Each packet from a Pod and to one is counted at the interface of the Pod in the Node's network namespace, by its addresses and
ports. The sets forget what was silent for two minutes; what they had counted is kept here for as long as the connection is
tracked.
"""

from __future__ import annotations

import asyncio
import re
import threading
from sys import intern
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.errors import Unavailable
from antrea.openflow.tracked_connection import PROTOCOLS
from antrea.outside.nftables.libnftables import NftError, connect

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping

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
_EXPIRY: Final = re.compile(r"(?: timeout \S+)? expires [^\s,}]+")
Ends = tuple[int, str, int, str, int]
"""Protocol, source and port, destination and port, of a packet."""


class Counted(NamedTuple):
    """Packets and octets of IP."""

    packets: int = 0
    octets: int = 0

    def since(self, before: Counted) -> Counted:
        return Counted(self.packets - before.packets, self.octets - before.octets)


NOTHING: Final = Counted()


class _Total:
    """Of the packets of one direction of a connection."""

    __slots__ = ("count", "owner")

    def __init__(self, owner: TrackedConnection, count: Counted) -> None:
        self.owner, self.count = owner, count


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
        self._elements: dict[str, set[str]] = {way: set() for way in _HOOKS}
        """Of the last read, as text without times."""
        self._changed: dict[Hashable, TrackedConnection] = {}
        """Connections that were counted at the last read."""
        self._new: dict[str, dict[Ends, Counted]] = {way: {} for way in _HOOKS}
        """What was counted at the last read of no connection that is known."""
        self._local: Collection[str] = ()

    async def follow(self, interfaces: Iterable[str]) -> None:
        """Count at these interfaces and no others. Raises Unavailable: nftables takes no table at all."""
        await asyncio.to_thread(self._follow, {name for name in interfaces if _NAME.fullmatch(name)})

    async def read(self) -> None:
        """Take in what was counted. Raises Unavailable."""
        text = {way: await asyncio.to_thread(self._read, way) for way in _HOOKS}
        await asyncio.to_thread(self._take, text)

    def _take(self, text: Mapping[str, str]) -> None:
        """Elements that are as they were at the read before, but for their time, are not looked at."""
        for way, sets in text.items():
            elements = set(map(_timeless, sets.split(",")))
            before, self._elements[way] = self._elements[way], elements
            olds = dict(_counts(before - elements, way))
            self._new[way] = {}
            for ends, count in _counts(elements - before, way):
                old = olds.get(ends, NOTHING)
                self._add(way, ends, count.since(old) if count.packets >= old.packets else count)

    def _add(self, way: str, ends: Ends, count: Counted) -> None:
        total = self._totals[way].get(ends)
        if total is None:
            self._new[way][ends] = count
        else:
            total.count = Counted(total.count.packets + count.packets, total.count.octets + count.octets)
            self._changed[total.owner.identity] = total.owner

    def apply(
        self, changed: Iterable[TrackedConnection], gone: Iterable[TrackedConnection], local: Collection[str]
    ) -> list[TrackedConnection]:
        """Those that have changed, by themselves or by their counts, with these; `local` are addresses of Pods of this Node.

        What was counted at the last read and is no packet of a connection is forgotten.
        """
        if local != self._local:
            self._local = local
            self._move()
        for one in gone:
            self._changed.pop(one.identity, None)
            for way, ends in self._ways(one):
                self._totals[way].pop(ends, None)
        for one in changed:
            self._changed[one.identity] = one
            for way, ends in self._ways(one):
                total = self._totals[way].get(ends)
                if total is None:
                    self._totals[way][ends] = _Total(one, self._new[way].get(ends, NOTHING))
                else:
                    total.owner = one
        self._new = {way: {} for way in _HOOKS}
        found, self._changed = self._changed, {}
        return [self.counted(one) for one in found.values()]

    def counted(self, found: TrackedConnection) -> TrackedConnection:
        """The connection with its counts."""
        (packets, octets), (reply, reply_octets) = (
            total.count if (total := self._totals[way].get(ends)) else NOTHING
            for way, ends in self._ways(found)
        )
        return found._replace(packets=packets, octets=octets, reply_packets=reply, reply_octets=reply_octets)

    def _move(self) -> None:
        """Forget what is counted elsewhere from now on, as a Pod has come or gone."""
        for way, totals in self._totals.items():
            for ends in [ends for ends, one in totals.items() if (way, ends) not in self._ways(one.owner)]:
                del totals[ends]

    def _ways(self, found: TrackedConnection) -> tuple[tuple[str, Ends], tuple[str, Ends]]:
        """Packets of both directions, at the source's interface if that is on this Node, else at the destination's."""
        protocol, source, sport, server, port, _ = found.key
        if source in self._local:
            there = (protocol, source, sport, found.destination, found.port)
            return ("up", there), ("down", (protocol, found.destination, found.port, source, sport))
        there = (protocol, found.source_seen, found.source_port_seen, server, port)
        return ("down", there), ("up", (protocol, server, port, found.source_seen, found.source_port_seen))

    def close(self) -> None:
        """Count nothing any more."""
        self._run(f"add table netdev {TABLE}\ndelete table netdev {TABLE}\n")
        self._chains = {}

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


def _timeless(element: str) -> str:
    """The element without the time that it has left."""
    begin, end = element.find(" timeout "), element.find(" counter ")
    return element[:begin] + element[end:] if 0 < begin < end else _EXPIRY.sub("", element)


def _counts(elements: Iterable[str], way: str) -> Iterator[tuple[Ends, Counted]]:
    header = ETHERNET if way == "down" else 0
    for element in elements:
        for found in _ELEMENT.finditer(element):
            source, destination, protocol, sport, dport, packets, octets = found.groups()
            ends = (PROTOCOLS.get(protocol, 0), intern(source), int(sport), intern(destination), int(dport))
            yield ends, Counted(int(packets), int(octets) - header * int(packets))


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
