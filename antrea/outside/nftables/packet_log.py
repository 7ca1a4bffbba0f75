"""Receives the packets that rules of nftables log (statement `log group`).

Source: linux/netfilter/nfnetlink_log.h, nfnetlink(7). The kernel serves one process per group and network namespace.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from typing import TYPE_CHECKING, Final

from antrea.errors import Refused
from antrea.outside.log import klog
from antrea.outside.nftables.libnftables import NETFILTER
from antrea.outside.nftables.watch import own_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = klog.logger(__name__)

_PACKET, _CONFIG, _ERROR = 4 << 8, 4 << 8 | 1, 2
_CMD, _MODE, _TIMEOUT, _THRESHOLD = 1, 2, 4, 5
_BIND, _COPY_PACKET = 1, 2
_PAYLOAD, _PREFIX = 9, 10
_HEADER: Final = struct.Struct("=IHHII")
_BODY: Final = _HEADER.size + 4
_REQUEST, _ACK = 1, 4
_ROOM: Final = 1 << 18
SLICE: Final = 50
"""Packets that are handled before others have their turn."""


class PacketLog:
    """Of one group, in the network namespace of the thread that runs it. `handle` gets the rule's prefix and the packet from its IP header on."""

    def __init__(self, group: int, octets: int, handle: Callable[[str, bytes], None]) -> None:
        self._group = group
        self._octets = octets
        self._handle = handle
        self.listening = asyncio.Event()

    async def run(self) -> None:
        """For ever. Raises Refused where another process has the group."""
        loop = asyncio.get_running_loop()
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_NETLINK, kind, NETFILTER) as news:
            news.bind((own_port(), 0))
            await loop.sock_sendall(news, self._request())
            self._acknowledged(await loop.sock_recv(news, _ROOM))
            self.listening.set()
            while True:
                try:
                    octets = await loop.sock_recv(news, _ROOM)
                except OSError as e:
                    if e.errno != errno.ENOBUFS:
                        raise
                    continue  # the kernel had no room left for some
                for number, (prefix, packet) in enumerate(_packets(octets), 1):
                    self._handle(prefix, packet)
                    if number % SLICE == 0:
                        await asyncio.sleep(0)

    def _request(self) -> bytes:
        """Bind the group; each packet at once, its first octets alone."""
        body = struct.pack("=BBH", socket.AF_UNSPEC, 0, socket.htons(self._group))
        body += _attribute(_CMD, struct.pack("=B", _BIND))
        body += _attribute(_MODE, struct.pack(">IBB", self._octets, _COPY_PACKET, 0))
        body += _attribute(_TIMEOUT, struct.pack(">I", 1)) + _attribute(_THRESHOLD, struct.pack(">I", 1))
        return _HEADER.pack(_HEADER.size + len(body), _CONFIG, _REQUEST | _ACK, 1, 0) + body

    def _acknowledged(self, octets: bytes) -> None:
        number = struct.unpack_from("=i", octets, _HEADER.size)[0] if len(octets) >= _BODY else -errno.EPROTO
        if number:
            raise Refused([], f"log group {self._group} of nftables: {errno.errorcode.get(-number, number)}")


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _packets(octets: bytes) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at + _BODY <= len(octets):
        length, kind, *_ = _HEADER.unpack_from(octets, at)
        if kind == _PACKET:
            found = dict(_attributes(octets[at + _BODY : at + length]))
            yield found.get(_PREFIX, b"").rstrip(b"\0").decode(errors="replace"), found.get(_PAYLOAD, b"")
        at += max(_HEADER.size, (length + 3) & ~3)


def _attributes(octets: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(octets):
        length, kind = struct.unpack_from("=HH", octets, at)
        yield kind, octets[at + 4 : at + length]
        at += max(4, (length + 3) & ~3)
