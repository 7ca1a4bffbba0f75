"""Notices when another program changes our tables of nftables: `nft flush ruleset`, a restart of the host's firewall.

Source: nfnetlink(7), linux/netfilter/nf_tables.h
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from typing import TYPE_CHECKING, Final

from antrea.host.nft import TABLE
from antrea.outside.log import klog
from antrea.outside.nftables.libnftables import NETFILTER, own_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = klog.logger(__name__)

_GROUP: Final = 1 << 6
"""NFNLGRP_NFTABLES"""
_NFTABLES: Final = 10
"""NFNL_SUBSYS_NFTABLES, the upper byte of a message's kind."""
_HEADER: Final = struct.Struct("=IHHII")
_BODY: Final = _HEADER.size + 4
"""Where attributes begin, behind struct nfgenmsg."""
_NAME: Final = struct.pack("=HH", 4 + len(name := TABLE.partition(" ")[2].encode() + b"\0"), 1) + name
"""The attribute with the name of a table, the first one of each message on it or on what is in it."""
_ROOM: Final = 1 << 18
_RCVBUFFORCE: Final = 33
"""SO_RCVBUFFORCE of Linux, which Python does not name."""
_BUFFER: Final = 8 << 20
"""Bytes of news that wait: kube-proxy may write thousands of elements of its own at once, and what is lost costs a resync."""
FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 60.0
"""Other programs mostly make a few changes, which are answered at once; those that make more meet longer and longer pauses."""


def own_port() -> int:
    """A number for a netlink socket of ours that leaves libnftables the number of the process."""
    return int.from_bytes(os.urandom(4)) | 1 << 31


class NftWatch:
    """Watch of nftables in the network namespace of the thread that runs it. Changes by sockets of this process are ignored."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called after others have changed something."""
        self._changed = changed
        self._own: set[int] = set()
        self._pause = FIRST_PAUSE_SECONDS
        self.listening = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled. A run after a failed one puts everything again, since changes were missed in between."""
        loop = asyncio.get_running_loop()
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        last = -MAX_PAUSE_SECONDS
        with socket.socket(socket.AF_NETLINK, kind, NETFILTER) as news:
            news.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, _BUFFER)
            news.bind((own_port(), _GROUP))
            if self.listening.is_set():
                self._changed()
            self.listening.set()
            while True:
                if not await self._foreign(loop, news):
                    continue
                log.warning("Our nftables were changed by another program, putting them again", table=TABLE)
                recent = loop.time() - last < MAX_PAUSE_SECONDS
                self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS) if recent else FIRST_PAUSE_SECONDS
                await asyncio.sleep(self._pause)
                self._drain(news)
                last = loop.time()
                self._changed()

    async def _foreign(self, loop: asyncio.AbstractEventLoop, news: socket.socket) -> bool:
        """Whether the next news is that others have changed something of ours."""
        try:
            ports = set(_changers(await loop.sock_recv(news, _ROOM)))
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return True  # nobody knows what was missed
        if ports - self._own:
            self._own = own_ports()
        return bool(ports - self._own)

    def _drain(self, news: socket.socket) -> None:
        """Drain notifications that arrived meanwhile: one response covers them."""
        try:
            while news.recv(_ROOM):
                pass
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise


def _changers(data: bytes) -> Iterator[int]:
    """The numbers of sockets that have changed our tables, or what is in them."""
    at = 0
    while at + _BODY <= len(data):
        length, kind, _, _, port = _HEADER.unpack_from(data, at)
        if kind >> 8 == _NFTABLES and data.startswith(_NAME, at + _BODY):
            yield port
        at += max(_HEADER.size, (length + 3) & ~3)
