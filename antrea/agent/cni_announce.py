"""Tells neighbours of a new Pod: three times, 50 ms apart, without holding up anybody.

# parity: pkg/agent/cniserver/interface_configuration_linux.go advertiseContainerAddr
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.outside import klog
from antrea.outside.announcement import announcement

if TYPE_CHECKING:
    from antrea.host.ovs_port import PodPort
    from antrea.outside.netns import NetnsWorker

log = klog.logger(__name__)

TIMES, GAP_SECONDS = 3, 0.05


class Announcer:
    """Announces in the background. `close` it when done."""

    def __init__(self, netns: NetnsWorker) -> None:
        self._netns = netns
        self._tasks: set[asyncio.Task[None]] = set()
        # The kernel holds whoever closes a packet socket until no CPU can be using it: 10 to 30 ms.
        self._closing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="announced")

    def announce(self, pod: PodPort) -> None:
        """Start to announce the addresses of a Pod's interface."""
        task = asyncio.create_task(self._announce(pod), name=f"announce {pod.container_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._closing.shutdown()

    async def _announce(self, pod: PodPort) -> None:
        """Best effort: the Pod works without it, only a neighbour that knew its address with another MAC is slow."""
        frames = [announcement(pod.mac, ip) for ip in pod.ips]
        link: socket.socket | None = None
        try:
            link = await self._netns.run(pod.netns, lambda: _bound(pod.if_dev))
            for _ in range(TIMES):
                for frame in frames:
                    link.send(frame)
                await asyncio.sleep(GAP_SECONDS)
        except (Unavailable, OSError) as e:
            log.v(1).info("Failed to announce addresses", container=pod.container_id, err=str(e))
        finally:
            if link is not None:
                self._closing.submit(link.close)


def _bound(if_name: str) -> socket.socket:
    """Belongs to the namespace that this thread is in, wherever it is used later. Raises OSError."""
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK)
    link.bind((if_name, 0))
    return link
