"""Notices when an interface that was up goes down and comes back: the kernel has dropped its routes meanwhile, and IPv6 addresses."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Final

from antrea.outside.log import klog
from antrea.outside.netlink.host_message import device_of, get_devices
from antrea.outside.netlink.message import (
    DEL_LINK,
    IFF_UP,
    IFLA_IFNAME,
    LINK,
    NEW_LINK,
    attributes,
    replies,
)
from antrea.outside.netlink.socket import Rtnl

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.outside.netlink.message import Reply

log = klog.logger(__name__)

_GROUP: Final = 0x1
"""RTMGRP_LINK. Source: linux/rtnetlink.h"""
_ROOM: Final = 1 << 16


class LinkWatch:
    """Watch of links in the network namespace of the thread that runs it. Down is what `ip link set down` does; a cable that is pulled is not."""

    def __init__(self, ours: Callable[[str], bool], came_back: Callable[[], None]) -> None:
        """`ours` selects interfaces by name; `came_back` is called for each of them that is up again."""
        self._ours = ours
        self._came_back = came_back
        self._up: dict[int, bool] = {}
        """Interfaces that have been up, and whether they are."""
        self.listening = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled. A run after a failed one restores everything, since changes were missed in between."""
        loop = asyncio.get_running_loop()
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE) as news:
            news.bind((0, _GROUP))
            with Rtnl() as kernel:
                for reply in kernel.ask(get_devices()):
                    self._note(reply)
            if self.listening.is_set():
                self._came_back()
            self.listening.set()
            while True:
                try:
                    for reply in replies(await loop.sock_recv(news, _ROOM)):
                        self._note(reply)
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    # nobody knows what was missed
                    self._came_back()

    def _note(self, reply: Reply) -> None:
        # ports of bridges and radios have news of their own under these numbers
        is_link = reply.kind in (NEW_LINK, DEL_LINK) and reply.body[0] == socket.AF_UNSPEC
        if not is_link or IFLA_IFNAME not in attributes(reply.body[LINK.size :]):
            return
        device = device_of(reply)
        if reply.kind == DEL_LINK:
            self._up.pop(device.index, None)
        elif self._ours(device.name):
            is_up = bool(device.flags & IFF_UP)
            if is_up and self._up.get(device.index) is False:
                log.warning("An interface was down; restoring its routes", dev=device.name)
                self._came_back()
            if is_up or device.index in self._up:
                self._up[device.index] = is_up
