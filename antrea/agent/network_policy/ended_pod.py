"""Forgets connections to and from Pods that have ended, when they end and when another Pod gets their address.

In between a client that goes on may have had a packet tracked again. Connections of a Pod with an address that no ended one had
are not touched.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from antrea.errors import Unavailable
from antrea.openflow.fields import Zone
from antrea.openflow.flow import Flow
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.engine import Engine
    from antrea.host.pod_tracking import TrackedPodAddress
    from antrea.outside.vswitch.conntrack import Tracked

log = klog.logger(__name__)

PAUSE: Final = 1.0
"""Seconds between tries, while ovs-vswitchd is away."""
MAX_ENDED: Final = 65_536
"""Addresses of ended Pods that are known, the latest."""


class Connections(Protocol):
    """What outside.vswitch.conntrack.Conntrack does for us."""

    async def connections(self, zone: int) -> list[Tracked]:
        """All of a zone. Raises Unavailable."""

    async def forget(self, found: list[Tracked]) -> None:
        """Have their next packets be first ones. Raises Unavailable."""


class EndedPodConnections:
    """Sink of TrackedPodAddress, with a task of its own (`run`)."""

    def __init__(self, conntrack: Connections, *, pause: float = PAUSE) -> None:
        """`pause` is in seconds, between tries."""
        self._conntrack, self._pause = conntrack, pause
        self._owners: dict[str, frozenset[str]] = {}
        self._ended: dict[str, None] = {}
        self._changed: set[str] = set()
        """Addresses whose connections are to be forgotten."""
        self._news = asyncio.Event()

    async def apply(self, put: Sequence[TrackedPodAddress], drop: Sequence[TrackedPodAddress]) -> None:
        """Forget connections of the addresses that Pods have lost, and of those that were lost and have a Pod again."""
        for one in drop:
            self._lose(one.ip)
        for one in put:
            self._has(one)
        if self._changed:
            self._news.set()

    async def resync(self, entries: Sequence[TrackedPodAddress]) -> None:
        """The same of all."""
        for ip in self._owners.keys() - {one.ip for one in entries}:
            self._lose(ip)
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """No Pod ends while the agent is away: the runtime needs it for that."""

    def _has(self, one: TrackedPodAddress) -> None:
        owners = frozenset(one.parts)
        if self._owners.get(one.ip, owners) - owners:
            self._lose(one.ip)
        elif one.ip in self._ended:
            self._changed.add(one.ip)
        self._owners[one.ip] = owners

    def _lose(self, ip: str) -> None:
        if self._owners.pop(ip, None) is not None:
            self._changed.add(ip)
            self._ended.pop(ip, None)
            self._ended[ip] = None
            while len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]

    async def run(self, engine: Engine) -> None:
        """Until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            changed, self._changed = self._changed, set()
            try:
                await self._forget(engine, changed)
            except Unavailable as error:
                log.v(2).info("Failed to forget connections of ended Pods", err=str(error))
                self._changed |= changed
                self._news.set()
                await asyncio.sleep(self._pause)

    async def _forget(self, engine: Engine, ips: set[str]) -> None:
        await engine.stand(Flow)
        for zone in sorted({Zone.CT_ZONE_V6 if ":" in ip else Zone.CT_ZONE for ip in ips}):
            found = [
                one
                for one in await self._conntrack.connections(int(zone))
                if not ips.isdisjoint((one.source, one.destination, one.server))
            ]
            await self._conntrack.forget(found)
            if found:
                log.info("Forgot connections of Pods that have ended", zone=int(zone), count=len(found))
