"""Entries of connection tracking that another Node made, entered into the table of this one.

The kernel does not let the translation of an entry be changed, so an entry in the way is replaced.
Source: linux/netfilter/nfnetlink_conntrack.h, net/netfilter/nf_conntrack_netlink.c ctnetlink_create_conntrack
"""

from __future__ import annotations

import errno
import socket
import struct
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable
from antrea.outside.netlink.connection_record import ASSURED, CONFIRMED, ESTABLISHED, LAYOUTS, SEEN, TCP
from antrea.outside.netlink.conntrack import NETFILTER
from antrea.outside.netlink.message import replies

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NEW, _DELETE = 0, 2
_SOL_NETLINK, _CAP_ACK = 270, 10
_RECEIVE_BUFFER: Final = 33
"""SO_RCVBUFFORCE"""
_ROOM: Final = 1 << 20
"""Bytes of errors that wait in the kernel."""
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = 0x1
_FLAGS: Final = _REQUEST | 0x400 | 0x200
"""NLM_F_REQUEST, NLM_F_CREATE, NLM_F_EXCL: only errors are answered."""
CHUNK: Final = 200
"""Entries that one system call makes: as many errors fit the socket."""
OTHER_SECONDS: Final = 600
"""Seconds that a copy of a connection without states is kept; the holder repeats it more often."""
CLOSING_SECONDS: Final = 3600
_TIMEOUT_FILE: Final = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established"
_FULL: Final = (errno.ENOMEM, errno.ENOSPC)
_FAMILY_OF: Final = {layout.size: version for version, layout in LAYOUTS.items()}


class CopiedConnections:
    """Writer of records into the kernel's table, in the network namespace of the thread that makes it."""

    def __init__(self) -> None:
        """Raises Unavailable."""
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETFILTER)
            self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER, _ROOM)
        except OSError as error:
            raise Unavailable(f"connections of the kernel cannot be made: {error}") from error

    def close(self) -> None:
        self._socket.close()

    def put(self, ip: str, entries: Sequence[bytes]) -> tuple[int, bool]:
        """Make entries of these records; an existing one with another translation is replaced.

        Returns how many the kernel refused, and whether its table is full. Blocks for the time of the system calls.
        """
        refused, full, seen = 0, False, ip_address(ip).packed
        for start in range(0, len(entries), CHUNK):
            part = entries[start : start + CHUNK]
            errors = self._send(_NEW, _FLAGS, [_creation(seen, record) for record in part])
            clashes = [part[index] for index, number in errors.items() if number == errno.EEXIST]
            if clashes:
                for form in (_first, _answer):
                    self._send(_DELETE, _REQUEST, [form(seen, record) for record in clashes])
                again = self._send(_NEW, _FLAGS, [_creation(seen, record) for record in clashes])
            else:
                again = {}
            others = [number for number in errors.values() if number != errno.EEXIST] + [*again.values()]
            refused += len(others)
            full = full or any(number in _FULL for number in others)
        return refused, full

    def remove(self, ip: str, entries: Sequence[bytes]) -> None:
        """Remove entries of these records, which have this address: they are found by their answers. Blocks for the time of the system calls."""
        seen = ip_address(ip).packed
        for start in range(0, len(entries), CHUNK):
            part = entries[start : start + CHUNK]
            self._send(_DELETE, _REQUEST, [_answer(seen, record) for record in part])

    def _send(self, kind: int, flags: int, bodies: Iterable[bytes]) -> dict[int, int]:
        """Return the error numbers by index."""
        messages = [
            _HEADER.pack(_HEADER.size + len(body), 1 << 8 | kind, flags, number, 0) + body
            for number, body in enumerate(bodies)
        ]
        self._socket.send(b"".join(messages))
        errors: dict[int, int] = {}
        while True:
            try:
                data = self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return errors
            except OSError:
                continue  # errors beyond the room of the socket
            errors |= {reply.number: reply.errno for reply in replies(data) if reply.errno}


def _nested(kind: int, length: int) -> bytes:
    return struct.pack("=HH", length, 1 << 15 | kind)


def _plain(kind: int, length: int) -> bytes:
    return struct.pack("=HH", length, kind)


_RECORDS: Final = {
    version: struct.Struct(f">BB{layout.size}s{layout.size}sHHH") for version, layout in LAYOUTS.items()
}


@lru_cache(maxsize=8)
def _tuple_parts(version: int, kind: int) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Return what is between source, destination, protocol and ports in a tuple."""
    size = LAYOUTS[version].size
    source, target = (1, 2) if version == 4 else (3, 4)
    ips, ports = 4 + 2 * (4 + size), 28
    return (
        _nested(kind, 4 + ips + ports) + _nested(1, ips) + _plain(source, 4 + size),
        _plain(target, 4 + size),
        _nested(2, ports) + _plain(1, 5),
        bytes(3) + _plain(2, 6),
        bytes(2) + _plain(3, 6),
    )


def _tuple(kind: int, version: int, protocol: int, ends: tuple[bytes, int, bytes, int]) -> bytes:
    first, second, third, fourth, fifth = _tuple_parts(version, kind)
    source, source_port, target, port = ends
    return b"".join(
        (
            *(first, source, second, target, third, bytes((protocol,)), fourth),
            *(source_port.to_bytes(2, "big"), fifth, port.to_bytes(2, "big"), b"\0\0"),
        )
    )


def _head(version: int) -> bytes:
    return struct.pack("=BBH", LAYOUTS[version].family, 0, 0)


def _first(seen: bytes, record: bytes) -> bytes:
    version = _FAMILY_OF[len(seen)]
    protocol, _, source, target, source_port, port, _ = _RECORDS[version].unpack(record)
    return _head(version) + _tuple(1, version, protocol, (source, source_port, target, port))


def _answer(seen: bytes, record: bytes) -> bytes:
    version = _FAMILY_OF[len(seen)]
    protocol, _, _, target, _, port, seen_port = _RECORDS[version].unpack(record)
    return _head(version) + _tuple(2, version, protocol, (target, port, seen, seen_port))


def _creation(seen: bytes, record: bytes) -> bytes:
    """The kernel turns the second tuple into what the translation makes of it."""
    version = _FAMILY_OF[len(seen)]
    protocol, state, source, target, source_port, port, seen_port = _RECORDS[version].unpack(record)
    body: bytes = _head(version)
    body += _tuple(1, version, protocol, (source, source_port, target, port))
    body += _tuple(2, version, protocol, (target, port, source, source_port))
    low, high = (1, 2) if version == 4 else (4, 5)
    ports = _nested(3, 20) + _plain(1, 6) + seen_port.to_bytes(2, "big") + bytes(2)
    ports += _plain(2, 6) + seen_port.to_bytes(2, "big") + bytes(2)
    size = 4 + len(seen)
    body += _nested(6, 4 + 2 * size + 20) + _plain(low, size) + seen + _plain(high, size) + seen + ports
    body += _plain(3, 8) + (SEEN | ASSURED | CONFIRMED).to_bytes(4, "big")
    body += _plain(7, 8) + _seconds(protocol, state).to_bytes(4, "big")
    if protocol == TCP:
        # windows, which the kernel does not list, do not count: flag and mask, for each direction
        flags = _plain(4, 6) + b"\x08\x08\0\0" + _plain(5, 6) + b"\x08\x08\0\0"
        body += _nested(4, 32) + _nested(1, 28) + _plain(1, 5) + bytes((state, 0, 0, 0)) + flags
    return body


def _seconds(protocol: int, state: int) -> int:
    if protocol != TCP:
        return OTHER_SECONDS
    return _established_seconds() if state == ESTABLISHED else CLOSING_SECONDS


@lru_cache(maxsize=1)
def _established_seconds() -> int:
    """Return how long the kernel keeps a connection without packets."""
    try:
        return int(Path(_TIMEOUT_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 432_000
