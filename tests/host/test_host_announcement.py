"""An address that moved is announced again and again on a real link, and no longer once this Node has lost it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, NamedTuple

from netdev_switch import until

from antrea.outside.neighbour.announcement import PAUSES, NodeAnnouncer, announcement

if TYPE_CHECKING:
    from conftest import Namespaces

MAC, IP = "0a:00:00:00:00:07", "192.0.2.40"


class Taken(NamedTuple):
    dev: str
    mac: str
    ip: str


async def test_an_address_is_announced_again_until_it_is_lost(netns: Namespaces) -> None:
    netns.sh("ip link add here type veth peer name there; ip link set here up; ip link set there up")
    wanted, held = announcement(MAC, IP), {IP}
    announcer = NodeAnnouncer(held.__contains__)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806)) as there:
        there.bind(("there", 0x0806))
        there.setblocking(False)
        heard: list[bytes] = []

        def many() -> int:
            with contextlib.suppress(BlockingIOError):
                while True:
                    heard.append(there.recv(2048))
            return heard.count(wanted)

        await announcer.announce(Taken("here", MAC, IP))
        await asyncio.to_thread(until, lambda: many() >= 4, "announcements", 30)
        held.clear()
        before = many()
        await asyncio.sleep(PAUSES[4] + 0.2)  # when the next one is due
        assert many() == before
    await announcer.close()
