"""Removal of connections of ended Pods, when they end and when another Pod gets their address.

In between a client that still sends may have had a packet tracked again. Connections of a Pod with an address that no ended one
had are not touched.
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
"""Maximum number of addresses of ended Pods that are remembered, the latest."""


class EndedPodConnections(ConnectionCleaner[str]):
    """Sink of TrackedPodAddress."""

    def __init__(self, conntrack: Connections, *, pause: float = PAUSE) -> None:
        """`pause` is in seconds, between tries."""
        super().__init__(conntrack, pause=pause)
        self._owners: dict[str, frozenset[str]] = {}
        self._ended: dict[str, None] = {}

    async def apply(self, put: Sequence[TrackedPodAddress], drop: Sequence[TrackedPodAddress]) -> None:
        """Remove connections of the addresses that Pods have lost, and of those that were lost and have a Pod again."""
        for entry in drop:
            self._lose(entry.ip)
        for entry in put:
            self._has(entry)

    async def resync(self, entries: Sequence[TrackedPodAddress]) -> None:
        """Apply all entries, and those that are missing now."""
        for ip in self._owners.keys() - {entry.ip for entry in entries}:
            self._lose(ip)
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Do nothing: no Pod ends while the agent is away, since the runtime needs it for that."""

    def _has(self, entry: TrackedPodAddress) -> None:
        owners = frozenset(entry.parts)
        if self._owners.get(entry.ip, owners) - owners:
            self._lose(entry.ip)
        elif entry.ip in self._ended:
            self.look_at((entry.ip,))
        self._owners[entry.ip] = owners

    def _lose(self, ip: str) -> None:
        if self._owners.pop(ip, None) is not None:
            self.look_at((ip,))
            self._ended.pop(ip, None)
            self._ended[ip] = None
            while len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]

    def is_stale(self, connection: Tracked, changed: set[str]) -> bool:
        """Whether the connection is to or from one of these addresses."""
        return not changed.isdisjoint((connection.source, connection.destination, connection.server))

    def report(self, zone: int, count: int) -> None:
        """Log how many connections were removed."""
        log.info("Forgot connections of Pods that have ended", zone=zone, count=count)
