"""Base of sinks whose changes make tracked connections of the switch stale: these are removed."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol, TypeVar

from antrea.errors import Unavailable
from antrea.openflow.fields import Zone
from antrea.openflow.flow import Flow
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.engine import Engine
    from antrea.outside.vswitch.conntrack import Tracked

log = klog.logger(__name__)

PAUSE: Final = 1.0
"""Seconds between tries, while ovs-vswitchd is away."""
K = TypeVar("K", str, tuple[str, int])


class Connections(Protocol):
    """Part of outside.vswitch.conntrack.Conntrack that is used."""

    async def connections(self, zone: int) -> list[Tracked]:
        """List all connections of a zone. Raises Unavailable."""

    async def forget(self, connections: list[Tracked]) -> None:
        """Have their next packets be first ones. Raises Unavailable."""


class ConnectionCleaner(ABC, Generic[K]):
    """Cleaner of stale connections with its own task (`run`); `stands` are the kinds of entries that must be applied before
    connections are read.
    """

    stands: ClassVar[tuple[type, ...]] = (Flow,)

    def __init__(self, conntrack: Connections, *, pause: float = PAUSE) -> None:
        """`pause` is the time between tries in seconds."""
        self._conntrack, self._pause = conntrack, pause
        self._changed: set[K] = set()
        """Addresses whose connections are to be checked."""
        self._news = asyncio.Event()

    def look_at(self, changed: Iterable[K]) -> None:
        """Check the connections of these addresses soon."""
        self._changed |= set(changed)
        if self._changed:
            self._news.set()

    @abstractmethod
    def is_stale(self, connection: Tracked, changed: set[K]) -> bool:
        """Whether a connection has one of these addresses, and is to be forgotten."""

    @abstractmethod
    def report(self, zone: int, count: int) -> None:
        """Log how many connections were removed."""

    async def run(self, engine: Engine) -> None:
        """Run until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            changed, self._changed = self._changed, set()
            try:
                await self._clean(engine, changed)
            except Unavailable as error:
                log.v(2).info(
                    "Failed to look at tracked connections", sink=type(self).__name__, err=str(error)
                )
                self.look_at(changed)
                await asyncio.sleep(self._pause)

    async def _clean(self, engine: Engine, changed: set[K]) -> None:
        for kind in self.stands:
            await engine.stand(kind)
        ips = (key if isinstance(key, str) else key[0] for key in changed)
        for zone in sorted({Zone.CT_ZONE_V6 if ":" in ip else Zone.CT_ZONE for ip in ips}):
            tracked = await self._conntrack.connections(int(zone))
            stale = [connection for connection in tracked if self.is_stale(connection, changed)]
            await self._conntrack.forget(stale)
            if stale:
                self.report(int(zone), len(stale))
