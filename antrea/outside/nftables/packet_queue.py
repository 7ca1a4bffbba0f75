"""Receives the packets that rules of nftables hold back (statement `queue`), and sends a verdict on each.

Source: linux/netfilter/nfnetlink_queue.h. The kernel serves one process per queue and network namespace; what it holds is dropped
when that process ends.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from functools import partial
from typing import TYPE_CHECKING, Final

from antrea.outside.log import klog
from antrea.outside.nftables.libnftables import NETFILTER, NftError
from antrea.outside.nftables.nfnetlink import acknowledge, attribute, messages, request
from antrea.outside.nftables.watch import own_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.outside.nftables.libnftables import Nft

log = klog.logger(__name__)

_PACKET, _VERDICT, _CONFIG = 3 << 8, 3 << 8 | 1, 3 << 8 | 2
_CMD, _MODE, _LENGTH = 1, 2, 3
_BIND, _COPY_PACKET = 1, 2
_PACKET_HEADER, _VERDICT_HEADER, _PAYLOAD = 1, 2, 10
_DROP, _ACCEPT = 0, 1
_WHOLE: Final = 0xFFFF
_ROOM: Final = 1 << 18
SLICE: Final = 50
"""Packets that are handled before others have their turn."""


class PacketQueue:
    """One queue, in the network namespace of the thread that runs it.

    `handle` gets the packet from its IP header on, and a function to call once with whether the packet is accepted.
    """

    def __init__(
        self, number: int, most: int, handle: Callable[[bytes, Callable[[bool], None]], None]
    ) -> None:
        """The kernel drops what comes while it holds `most` packets."""
        self._number, self._most = number, most
        self._handle = handle

    async def run(self, begin: Callable[[], None]) -> None:
        """For ever; `begin` is called once the queue is ours. Raises Refused where another process has it."""
        loop = asyncio.get_running_loop()
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_NETLINK, kind, NETFILTER) as held:
            held.bind((own_port(), 0))
            for what in self._requests():
                await loop.sock_sendall(held, what)
                acknowledge(await loop.sock_recv(held, _ROOM), f"queue {self._number} of nftables")
            begin()
            while True:
                await self._receive(held)

    async def _receive(self, held: socket.socket) -> None:
        try:
            data = await asyncio.get_running_loop().sock_recv(held, _ROOM)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return  # the kernel had no room left for some, and dropped them
        for number, packet in enumerate(messages(data, _PACKET), 1):
            if len(header := packet.get(_PACKET_HEADER, b"")) >= struct.calcsize("=I"):
                self._handle(packet.get(_PAYLOAD, b""), partial(self._decide, held, header[:4]))
            if number % SLICE == 0:
                await asyncio.sleep(0)

    def _decide(self, held: socket.socket, packet: bytes, goes_on: bool) -> None:
        """The kernel takes verdicts at once; of a queue that has ended it has dropped everything."""
        verdict = struct.pack(">I", _ACCEPT if goes_on else _DROP) + packet
        if held.fileno() < 0:
            return
        try:
            held.send(request(_VERDICT, self._number, attribute(_VERDICT_HEADER, verdict)))
        except OSError as error:
            log.warning(
                "The kernel did not take what becomes of a packet", queue=self._number, err=str(error)
            )

    def _requests(self) -> tuple[bytes, bytes]:
        """Bind the queue; then have whole packets, of which the kernel holds so many."""
        bind = attribute(_CMD, struct.pack(">BBH", _BIND, 0, 0))
        mode = attribute(_MODE, struct.pack(">IB", _WHOLE, _COPY_PACKET))
        length = attribute(_LENGTH, struct.pack(">I", self._most))
        return (
            request(_CONFIG, self._number, bind, acknowledged=True),
            request(_CONFIG, self._number, mode, length, acknowledged=True),
        )


def unsupported(nft: Nft) -> str:
    """Why rules cannot lead to a queue in this kernel; empty if they can. The trial and its removal are one transaction."""
    table = "table inet antrea-queue-trial"
    lines = (f"add {table}", f"add chain {table[6:]} c", f"add rule {table[6:]} c queue flags bypass to 0")
    try:
        nft.run("".join(f"{line}\n" for line in (*lines, f"delete {table}")))
    except NftError as error:
        return f"the kernel refuses statement queue (module nft_queue): {next(iter(error.lines.values()), error)}"
    return ""
