"""Announce the MAC of an address to neighbours: gratuitous ARP and unsolicited neighbour advertisement.

# parity: pkg/agent/cniserver/interface_configuration_linux.go advertiseContainerAddr
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from antrea.errors import Unavailable
from antrea.outside.log import klog
from antrea.outside.neighbour.frame import ALL_NODES, BROADCAST, arp_request, icmpv6

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from antrea.host.ovs_port import PodPort
    from antrea.outside.netlink.netns import NetnsWorker

log = klog.logger(__name__)

TIMES, GAP_SECONDS = 3, 0.05
PAUSES = (0.0, 0.05, 0.05, 0.4, 0.5, 1.0, 3.0)
"""Seconds before each announcement of an address that moves: the last one goes 5 s after the first."""


class _Background:
    """Announcements under way, none of which holds up anybody. `close` it when done."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        # The kernel holds whoever closes a packet socket until no CPU can be using it: 10 to 30 ms.
        self._closing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="announced")

    def begin(self, work: Coroutine[Any, Any, None], of: str) -> None:
        """Go on with `work`, named after whom it announces."""
        task = asyncio.create_task(work, name=f"announce {of}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def finish(self, link: socket.socket) -> None:
        """Close a socket, without waiting for it."""
        self._closing.submit(link.close)

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._closing.shutdown()


class Announcer(_Background):
    """Announces new Pods in the background: three times, 50 ms apart, without holding up anybody. `close` it when done."""

    def __init__(self, netns: NetnsWorker) -> None:
        super().__init__()
        self._netns = netns

    def announce(self, pod: PodPort) -> None:
        """Start to announce the addresses of a Pod's interface."""
        self.begin(self._announce(pod), pod.container_id)

    async def _announce(self, pod: PodPort) -> None:
        """Best effort: the Pod works without it, only a neighbour that knew its address with another MAC is slow."""
        frames = [announcement(pod.mac, ip) for ip in pod.ips]
        link: socket.socket | None = None
        try:
            link = await self._open(pod)
            for _ in range(TIMES):
                for frame in frames:
                    link.send(frame)
                await asyncio.sleep(GAP_SECONDS)
        except (Unavailable, OSError) as error:
            log.v(1).info("Failed to announce addresses", container=pod.container_id, err=str(error))
        finally:
            if link is not None:
                self.finish(link)

    async def _open(self, pod: PodPort) -> socket.socket:
        """Open a socket in the Pod's namespace. Raises Unavailable, OSError. A cancellation waits until it is open, and closes it."""
        opening = asyncio.ensure_future(self._netns.run(pod.netns, lambda: _bound(pod.if_dev)))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # a thread makes the socket now, and nobody else would close it
            with contextlib.suppress(Unavailable, OSError):
                self.finish(await opening)
            raise


class HeldNodeAddress(Protocol):
    """An address that this Node has from now on."""

    @property
    def dev(self) -> str: ...

    @property
    def mac(self) -> str:
        """Empty: that of `dev`."""

    @property
    def ip(self) -> str: ...


class NodeAnnouncer(_Background):
    """Announces addresses that this Node took over, all of them at once. `close` it when done.

    The first one may get lost while switches and routers detect that a Node is gone, and a router that missed it
    keeps the old MAC for 8 s: so it is repeated, as long as the address is here. Works in the network namespace of the
    calling thread.
    """

    def __init__(self, holds: Callable[[str], bool]) -> None:
        """`holds` returns whether this Node still has an address."""
        super().__init__()
        self._holds = holds

    async def announce(self, held: HeldNodeAddress) -> None:
        """Returns once it has begun: many may come together."""
        self.begin(self._announce(held), held.ip)

    async def _announce(self, held: HeldNodeAddress) -> None:
        try:
            link = _bound(held.dev)
        except OSError as error:
            log.warning("Failed to announce an address", ip=held.ip, dev=held.dev, err=str(error))
            return
        frame = announcement(held.mac or link.getsockname()[4].hex(":"), held.ip)
        log.info("Announcing an address", ip=held.ip, dev=held.dev)
        try:
            for pause in PAUSES:
                await asyncio.sleep(pause)
                if not self._holds(held.ip):
                    break
                # a queue that is full now is none when it is said again
                with contextlib.suppress(OSError):
                    link.send(frame)
        finally:
            self.finish(link)


def announcement(mac: str, ip: str) -> bytes:
    """The whole Ethernet frame, from `mac`, for one address of either family."""
    address = ipaddress.ip_address(ip)
    source = bytes.fromhex(mac.replace(":", ""))
    return (
        gratuitous_arp(source, address.packed)
        if address.version == 4
        else unsolicited_na(source, address.packed)
    )


def gratuitous_arp(mac: bytes, ip: bytes) -> bytes:
    """A broadcast ARP request of an address for itself (RFC 5227, 3).

    # parity: pkg/agent/util/arping/arping_linux.go newARPRequest, target hardware address included
    """
    return arp_request(mac, ip, BROADCAST, ip)


def unsolicited_na(mac: bytes, ip: bytes) -> bytes:
    """A neighbour advertisement to all nodes with the override flag (RFC 4861, 4.4 and 7.2.6)."""
    advertisement = struct.pack("!BBHI16sBB6s", 136, 0, 0, 1 << 29, ip, 2, 1, mac)
    return icmpv6(mac, ip, ALL_NODES, advertisement)


def _bound(if_name: str) -> socket.socket:
    """Belongs to the namespace that this thread is in, wherever it is used later. Raises OSError."""
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK)
    try:
        link.bind((if_name, 0))
    except OSError:
        link.close()
        raise
    return link
