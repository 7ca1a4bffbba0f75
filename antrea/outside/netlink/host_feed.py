"""The feeds of this Node's addresses and interfaces, updated at once when one comes or goes."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from antrea.facts.fact import Fact
from antrea.facts.node import LocalAddress, LocalLink
from antrea.outside.netlink.host_message import address_of
from antrea.outside.netlink.message import get_addresses
from antrea.outside.netlink.socket import Rtnl

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.engine import Facts

T = TypeVar("T", bound=Fact)
_ADDRESSES: Final = 0x10 | 0x100
"""RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR. Source: linux/rtnetlink.h"""
_LINKS: Final = 0x1
"""RTMGRP_LINK"""
_ROOM: Final = 1 << 16


class NetlinkFeed(Generic[T]):
    """Feed of a kind of fact, in the network namespace of the thread that runs it.

    A notification only triggers a dump of all rows, so that lost messages do not matter.
    """

    def __init__(self, kind: type[T], groups: int, rows: Callable[[], list[T]]) -> None:
        self._kind, self._groups, self._rows = kind, groups, rows

    async def run(self, facts: Facts) -> None:
        """Forever."""
        loop = asyncio.get_running_loop()
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE) as news:
            news.bind((0, self._groups))
            while True:
                facts.replace(self._kind, await asyncio.to_thread(self._rows))
                facts.synced(self._kind)
                try:
                    await loop.sock_recv(news, _ROOM)
                    _drain(news)
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise


def address_feed() -> NetlinkFeed[LocalAddress]:
    """Make the feed of LocalAddress."""
    return NetlinkFeed(LocalAddress, _ADDRESSES, local_addresses)


def link_feed() -> NetlinkFeed[LocalLink]:
    """Make the feed of LocalLink."""
    return NetlinkFeed(LocalLink, _LINKS, local_links)


def _drain(news: socket.socket) -> None:
    """Take all notifications that have arrived as one change."""
    while True:
        try:
            news.recv(_ROOM)
        except BlockingIOError:
            return


def local_addresses() -> list[LocalAddress]:
    """Return the addresses of all present interfaces, without those that the kernel does not use as another host has them. Raises OSError."""
    names = dict(socket.if_nameindex())
    with Rtnl() as kernel:
        addresses = [address_of(reply) for reply in kernel.ask(get_addresses())]
    rows: dict[str, LocalAddress] = {}
    for address in addresses:
        if address.is_global and not address.has_other and address.index in names:
            found_ip = ipaddress.ip_interface(address.cidr)
            row = LocalAddress(str(found_ip.ip), names[address.index], found_ip.network.prefixlen)
            rows.setdefault(row.ip, row)
    return list(rows.values())


def local_links() -> list[LocalLink]:
    """All interfaces. Raises OSError."""
    return [LocalLink(name, index) for index, name in socket.if_nameindex()]
