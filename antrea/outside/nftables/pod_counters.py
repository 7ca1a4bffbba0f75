"""Counts packets of Pods by nftables, for a datapath whose connection tracking counts nothing: OVS's own in user space.

Each packet from a Pod and to one is counted at the interface of the Pod in the Node's network namespace, by its addresses and
ports. The sets forget what was silent for some reads; what they had counted is kept here for as long as the connection is
tracked.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from antrea.errors import Unavailable
from antrea.outside.nftables.libnftables import NftError, connect
from antrea.outside.nftables.set_counters import SetCounters, counts_of

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable

    from antrea.openflow.tracked_connection import TrackedConnection
    from antrea.outside.nftables.libnftables import Nft

TABLE: Final = "antrea_flows"
PRIORITY: Final = -10
"""Before the chains that let no packet of a Pod into the Node's own stack: these drop all."""
MAX_ENTRIES: Final = 65536
"""Entries of a set: one direction, one family; packets of more are not counted."""
SHORTEST: Final = 30
"""Seconds of silence before a set forgets."""
READS: Final = 4
"""Reads that are due meanwhile: one that is late loses nothing."""
ETHERNET: Final = 14
"""Bytes of its header, which a packet still has before it goes out."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_KEYS: Final = {"4": "ip saddr . ip daddr", "6": "ip6 saddr . ip6 daddr"}
_SIZES: Final = {"4": 20, "6": 44}
"""Bytes of a key: all fields take four, but for addresses of IPv6."""
_HOOKS: Final = {"up": "ingress", "down": "egress"}
_REST: Final = struct.Struct("!B3xH2xH2x")
"""Protocol and ports."""


class Counters(Protocol):
    """Reader of the sets."""

    def read(self, name: str, size: int) -> dict[bytes, bytes]:
        """Counters by keys, which have so many bytes. Raises Unavailable."""


class _Total:
    """Counts of the packets of one direction of a connection."""

    __slots__ = ("byte_count", "owner", "packets")

    def __init__(self, owner: TrackedConnection, count: tuple[int, int]) -> None:
        self.owner = owner
        self.packets, self.byte_count = count


class PodCounters:
    """In the network namespace of the thread that makes it."""

    def __init__(self, poll: float, nft: Nft | None = None, counters: Counters | None = None) -> None:
        """`poll` is the number of seconds between two reads."""
        self._nft = nft or connect()
        self._sets = SetCounters(TABLE) if counters is None else counters
        self._silence = max(SHORTEST, int(READS * poll))
        self._lock = threading.Lock()
        """A thread runs for a while after its task was cancelled."""
        self._chains: dict[str, int] = {}
        """Numbers of those that are there, by interface."""
        self._number = 0
        self.trouble = ""
        """Why nothing is counted at some interface; empty: it is at all."""
        self._totals: dict[str, dict[bytes, _Total]] = {way: {} for way in _HOOKS}
        self._elements: dict[str, dict[bytes, bytes]] = {way: {} for way in _HOOKS}
        """Counters of the last read by keys."""
        self._changed: dict[Hashable, TrackedConnection] = {}
        """Connections that were counted at the last read."""
        self._new: dict[str, dict[bytes, tuple[int, int]]] = {way: {} for way in _HOOKS}
        """Counts of the last read that belong to no known connection."""
        self._local: Collection[str] = ()

    async def follow(self, interfaces: Iterable[str]) -> None:
        """Count at these interfaces and no others. Raises Unavailable: nftables takes no table at all."""
        await asyncio.to_thread(self._follow, {name for name in interfaces if _NAME.fullmatch(name)})

    async def read(self) -> None:
        """Take in what was counted. Raises Unavailable."""
        await asyncio.to_thread(self._read_counters)

    def _read_counters(self) -> None:
        """Elements that are as they were at the read before are not looked at."""
        for way in _HOOKS:
            elements = self._read(way)
            before, self._elements[way] = self._elements[way], elements
            self._new[way] = {}
            for key in [key for key, counter in elements.items() if before.get(key) != counter]:
                packets, byte_count = _counted(way, elements[key])
                old = _counted(way, before[key]) if key in before else _NOTHING
                if packets >= old[0]:
                    packets, byte_count = packets - old[0], byte_count - old[1]
                self._add(way, key, packets, byte_count)

    def _add(self, way: str, key: bytes, packets: int, byte_count: int) -> None:
        total = self._totals[way].get(key)
        if total is None:
            self._new[way][key] = (packets, byte_count)
        else:
            total.packets += packets
            total.byte_count += byte_count
            self._changed[total.owner.identity] = total.owner

    def apply(
        self, changed: Iterable[TrackedConnection], gone: Iterable[TrackedConnection], local: Collection[str]
    ) -> list[TrackedConnection]:
        """Return the connections that have changed, by themselves or by their counts, with these; `local` are addresses of Pods of this Node.

        What was counted at the last read and is not a packet of a connection is forgotten.
        """
        if local != self._local:
            self._local = local
            self._move()
        for connection in gone:
            self._changed.pop(connection.identity, None)
            for way, key in self._ways(connection):
                self._totals[way].pop(key, None)
        for connection in changed:
            self._changed[connection.identity] = connection
            for way, key in self._ways(connection):
                total = self._totals[way].get(key)
                if total is None:
                    self._totals[way][key] = _Total(connection, self._new[way].get(key, _NOTHING))
                else:
                    total.owner = connection
        self._new = {way: {} for way in _HOOKS}
        changed_connections, self._changed = self._changed, {}
        return [self.counted(connection) for connection in changed_connections.values()]

    def counted(self, connection: TrackedConnection) -> TrackedConnection:
        """The connection with its counts."""
        (packets, byte_count), (reply, reply_byte_count) = (
            (total.packets, total.byte_count) if (total := self._totals[way].get(key)) else _NOTHING
            for way, key in self._ways(connection)
        )
        return connection._replace(
            packets=packets, byte_count=byte_count, reply_packets=reply, reply_byte_count=reply_byte_count
        )

    def _move(self) -> None:
        """Forget what is counted elsewhere from now on, as a Pod has come or gone."""
        for way, totals in self._totals.items():
            for key in [key for key, total in totals.items() if (way, key) not in self._ways(total.owner)]:
                del totals[key]

    def _ways(self, connection: TrackedConnection) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
        """Packets of both directions, at the source's interface if that is on this Node, else at the destination's."""
        protocol, source, sport, server, port, _ = connection.key
        if source in self._local:
            there, at = connection.destination, connection.port
            return ("up", _key(protocol, source, sport, there, at)), (
                "down",
                _key(protocol, there, at, source, sport),
            )
        there, at = connection.source_seen, connection.source_port_seen
        return ("down", _key(protocol, there, at, server, port)), (
            "up",
            _key(protocol, server, port, there, at),
        )

    def close(self) -> None:
        """Count nothing any more."""
        self._run(f"add table netdev {TABLE}\ndelete table netdev {TABLE}\n")
        self._chains = {}

    def _follow(self, wanted: set[str]) -> None:
        if not self._number:
            self._run(_table(self._silence))
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

    def _read(self, way: str) -> dict[bytes, bytes]:
        with self._lock:
            return {
                key: counter
                for family, size in _SIZES.items()
                for key, counter in self._sets.read(f"{way}{family}", size).items()
            }

    def _run(self, commands: str) -> None:
        try:
            with self._lock:
                self._nft.run(commands)
        except NftError as error:
            raise Unavailable(f"counters of Pods cannot be read: {error}") from error

    def _try(self, commands: str) -> str:
        """Why they failed; empty: they have not."""
        try:
            self._run(commands)
        except Unavailable as error:
            return str(error)
        return ""


_NOTHING: Final = (0, 0)


def _counted(way: str, counter: bytes) -> tuple[int, int]:
    """Packets, and bytes of IP."""
    packets, byte_count = counts_of(counter)
    return packets, byte_count - packets * (ETHERNET if way == "down" else 0)


def _key(protocol: int, source: str, sport: int, destination: str, port: int) -> bytes:
    """Return the key of packets with these ends, as a set has it."""
    return _packed(source) + _packed(destination) + _REST.pack(protocol, sport, port)


@lru_cache(4096)
def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def _table(silence: int) -> str:
    """Without what an agent before this one has counted."""
    sets = "".join(
        f"add set netdev {TABLE} {way}{family} {{ typeof {key} . meta l4proto . th sport . th dport; "
        f"flags dynamic,timeout; timeout {silence}s; size {MAX_ENTRIES}; counter; }}\n"
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
