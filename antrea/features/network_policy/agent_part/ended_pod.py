"""Forgets connections to and from Pods that have ended, when they end and when another Pod gets their address.

In between a client that goes on may have had a packet tracked again. Connections of a Pod with an address that no ended one had
are not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.outside.log import klog
from antrea.outside.vswitch.connection_cleaner import PAUSE, ConnectionCleaner, Connections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.host.pod_tracking import TrackedPodAddress
    from antrea.outside.vswitch.conntrack import Tracked

log = klog.logger(__name__)

MAX_ENDED: Final = 65_536
"""Addresses of ended Pods that are known, the latest."""


class EndedPodConnections(ConnectionCleaner[str]):
    """Sink of TrackedPodAddress."""

    def __init__(self, conntrack: Connections, *, pause: float = PAUSE) -> None:
        """`pause` is in seconds, between tries."""
        super().__init__(conntrack, pause=pause)
        self._owners: dict[str, frozenset[str]] = {}
        self._ended: dict[str, None] = {}

    async def apply(self, put: Sequence[TrackedPodAddress], drop: Sequence[TrackedPodAddress]) -> None:
        """Forget connections of the addresses that Pods have lost, and of those that were lost and have a Pod again."""
        for one in drop:
            self._lose(one.ip)
        for one in put:
            self._has(one)

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
            self.look_at((one.ip,))
        self._owners[one.ip] = owners

    def _lose(self, ip: str) -> None:
        if self._owners.pop(ip, None) is not None:
            self.look_at((ip,))
            self._ended.pop(ip, None)
            self._ended[ip] = None
            while len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]

    def is_stale(self, one: Tracked, changed: set[str]) -> bool:
        """Whether it is to or from one of these addresses."""
        return not changed.isdisjoint((one.source, one.destination, one.server))

    def report(self, zone: int, count: int) -> None:
        """As the base class."""
        log.info("Forgot connections of Pods that have ended", zone=zone, count=count)
