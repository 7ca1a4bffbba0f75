"""Connections as `ovs-appctl dpctl/dump-conntrack -s` prints them, of the kernel's connection tracking or OVS's own.

Source: lib/ct-dpif.c ct_dpif_format_entry. OVS's own counts nothing and keeps no times, which are 0 then.
"""

from __future__ import annotations

import re
from datetime import datetime
from sys import intern
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

PROTOCOLS: Final = {"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1, "icmpv6": 58}
# the kernel's names of the states (net/netfilter/nf_conntrack_proto_tcp.c), which records have, by those of OVS
_STATES: Final = {
    "SYN_SENT": "SYN_SENT",
    "SYN_RECV": "SYN_RECV",
    "ESTABLISHED": "ESTABLISHED",
    "FIN_WAIT_1": "FIN_WAIT",
    "FIN_WAIT_2": "FIN_WAIT",
    "CLOSE_WAIT": "CLOSE_WAIT",
    "LAST_ACK": "LAST_ACK",
    "TIME_WAIT": "TIME_WAIT",
    "CLOSING": "CLOSE",
    "CLOSED": "CLOSE",
}
_TUPLE: Final = (
    r"\(src=([^,]+),dst=([^,)]+)(?:,sport=(\d+),dport=(\d+)|,id=(\d+),type=\d+,code=\d+)?"
    r"(?:,packets=(\d+),bytes=(\d+))?\)"
)
_LINE: Final = re.compile(
    rf"^(\w+),orig={_TUPLE},reply={_TUPLE}(?:,start=([^,]*))?(?:,stop=[^,]*)?(?:,zone=\d+)?(?:,timeout=\d+)?"
    r"(?:,mark=(\d+))?(?:,labels=(0x[0-9a-f]+))?(?:,protoinfo=\(state=(\w+))?",
    re.MULTILINE,
)
_LINES: Final = re.compile(r"[^\n]+")
"""Each is made when its turn comes: all at a time are megabytes."""
Key = tuple[int, str, int, str, int, int]
"""Protocol, source and port, who answers and port, identifier of an echo."""


class HostOriginal(NamedTuple):
    """Ends of the first packet of a connection as the host got it, which then translated one of them or both."""

    source: str
    source_port: int
    ip: str
    port: int


class TrackedConnection(NamedTuple):
    """One connection, as its first packet had it; ports are 0 for ICMP."""

    key: Key
    destination: str
    """Where its first packet was sent to: another address than that of the key if that was translated."""
    port: int
    source_seen: str
    """Address that the other end sees as the source."""
    source_port_seen: int
    packets: int
    byte_count: int
    reply_packets: int
    reply_byte_count: int
    start: str
    """Time of the start as printed; empty: not known."""
    mark: int
    label: int
    state: str
    """State of TCP by the kernel's name; empty for other protocols."""
    host: HostOriginal | None = None
    """None where the host has translated nothing, or has not been asked."""
    is_direction_known: bool = True
    """Whether the source is who has opened it."""

    @property
    def client(self) -> tuple[str, int]:
        """Address and port of who has sent the first packet."""
        return self.host[:2] if self.host else self.key[1:3]

    @property
    def identity(self) -> tuple[Key, str]:
        """Another connection of the same ends has begun at another time, where that is known."""
        return self.key, self.start

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """Key that connections share if only their source ports and times differ."""
        protocol, _, _, server, server_port, _ = self.key
        translated = self.client != (self.source_seen, self.source_port_seen)
        to = (server, server_port, self.destination, self.port, self.host and self.host[2:])
        marks = (self.mark, self.label, self.is_direction_known)
        return protocol, self.client[0], self.source_seen, translated, to, *marks


def tracked_connections(text: str) -> Iterator[TrackedConnection]:
    """Yield the connections of a dump, without lines that cannot be parsed and protocols that have no records."""
    for match in _LINE.finditer(text):
        (name, source, destination, sport, dport, echo, packets, byte_count, server, seen, server_port, seen_port, _,
         reply_packets, reply_byte_count, start, mark, label, state) = match.groups()  # fmt: skip
        if name not in PROTOCOLS:
            continue
        # addresses are those of few Pods, and each is held once
        key = (
            PROTOCOLS[name],
            intern(source),
            int(sport or 0),
            intern(server),
            int(server_port or 0),
            int(echo or 0),
        )
        yield TrackedConnection(
            key, intern(destination), int(dport or 0), intern(seen), int(seen_port or 0), int(packets or 0), int(byte_count or 0),
            int(reply_packets or 0), int(reply_byte_count or 0), start or "", int(mark or 0), int(label or "0", 16),
            _STATES.get(state or "", "") if name == "tcp" else "",
        )  # fmt: skip


class TrackedDump:
    """All connections as dumps show them; of each dump only what is another than in the one before is parsed."""

    def __init__(self) -> None:
        self._found: dict[int, TrackedConnection | None] = {}
        """Connections by the hash of the line without its remaining time, which differs in each dump."""

    def read(self, texts: Iterable[str]) -> tuple[list[TrackedConnection], list[TrackedConnection]]:
        """Return new and changed connections, and the last state of ended ones."""
        before, present = self._found, dict[int, TrackedConnection | None]()
        changed = []
        for text in texts:
            for match in _LINES.finditer(text):
                line = match[0]
                begin, _, rest = line.partition(",timeout=")
                line_hash = hash((begin, rest.partition(",")[2]))
                if line_hash in before:
                    present[line_hash] = before[line_hash]
                    continue
                present[line_hash] = connection = next(tracked_connections(line), None)
                if connection:
                    changed.append(connection)
        self._found, stay = present, {connection.identity for connection in changed}
        gone = [
            connection
            for line_hash, connection in before.items()
            if connection and line_hash not in present and connection.identity not in stay
        ]
        return changed, gone

    def everything(self) -> Iterator[TrackedConnection]:
        """Yield the connections of the last dump."""
        return (connection for connection in self._found.values() if connection)


def start_time(text: str) -> float | None:
    """Seconds of the epoch, of the time that a dump prints; None if it is not known."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
