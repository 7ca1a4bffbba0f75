"""Receives the packets that rules of nftables log (statement `log group`).

Source: linux/netfilter/nfnetlink_log.h, nfnetlink(7). The kernel serves one process per group and network namespace.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from typing import TYPE_CHECKING, Final

from antrea.outside.log import klog
from antrea.outside.nftables.libnftables import NETFILTER
from antrea.outside.nftables.nfnetlink import acknowledge, attribute, messages, request
from antrea.outside.nftables.watch import own_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = klog.logger(__name__)

_PACKET, _CONFIG = 4 << 8, 4 << 8 | 1
_CMD, _MODE, _TIMEOUT, _THRESHOLD = 1, 2, 4, 5
_BIND, _COPY_PACKET = 1, 2
_PAYLOAD, _PREFIX = 9, 10
_ROOM: Final = 1 << 18
SLICE: Final = 50
"""Packets that are handled before others have their turn."""


class PacketLog:
    """Log of one group, in the network namespace of the thread that runs it. `handle` gets the rule's prefix and the packet from its IP header on."""

    def __init__(self, group: int, size: int, handle: Callable[[str, bytes], None]) -> None:
        self._group = group
        self._size = size
        self._handle = handle
        self.listening = asyncio.Event()

    async def run(self) -> None:
        """For ever. Raises Refused where another process has the group."""
        loop = asyncio.get_running_loop()
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_NETLINK, kind, NETFILTER) as news:
            news.bind((own_port(), 0))
            await loop.sock_sendall(news, self._request())
            acknowledge(await loop.sock_recv(news, _ROOM), f"log group {self._group} of nftables")
            self.listening.set()
            while True:
                try:
                    data = await loop.sock_recv(news, _ROOM)
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    continue  # the kernel had no room left for some
                for number, (prefix, packet) in enumerate(_packets(data), 1):
                    self._handle(prefix, packet)
                    if number % SLICE == 0:
                        await asyncio.sleep(0)

    def _request(self) -> bytes:
        """Bind the group; each packet at once, its first bytes alone."""
        wanted = (
            attribute(_CMD, struct.pack("=B", _BIND)),
            attribute(_MODE, struct.pack(">IBB", self._size, _COPY_PACKET, 0)),
            attribute(_TIMEOUT, struct.pack(">I", 1)),
            attribute(_THRESHOLD, struct.pack(">I", 1)),
        )
        return request(_CONFIG, self._group, *wanted, acknowledged=True)


def _packets(data: bytes) -> Iterator[tuple[str, bytes]]:
    for message in messages(data, _PACKET):
        prefix = message.get(_PREFIX, b"").rstrip(b"\0").decode(errors="replace")
        yield prefix, message.get(_PAYLOAD, b"")
