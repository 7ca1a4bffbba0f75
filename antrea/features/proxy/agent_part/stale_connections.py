"""Removal of UDP connections through Services whose Endpoint is gone, so that their next packet is a first one.

Connection tracking translates each packet of a connection as its first one; UDP has no end, so a client that continues from the
same port (DNS, QUIC, syslog) would send to a Pod that is gone for as long as it sends.
parity: pkg/agent/proxy/proxier.go, gate CleanupStaleUDPSvcConntrack
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.host.udp_binding import server
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.outside.log import klog
from antrea.outside.vswitch.connection_cleaner import PAUSE, ConnectionCleaner, Connections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.host.udp_binding import UdpBinding
    from antrea.outside.vswitch.conntrack import Tracked

log = klog.logger(__name__)


class StaleConnections(ConnectionCleaner[tuple[str, int]]):
    """Sink of UdpBinding."""

    stands = (Group, Flow)

    def __init__(self, conntrack: Connections, *, pause: float = PAUSE) -> None:
        """`pause` is in seconds, between tries."""
        super().__init__(conntrack, pause=pause)
        self._bound: dict[tuple[str, int], frozenset[str]] = {}

    async def apply(self, put: Sequence[UdpBinding], drop: Sequence[UdpBinding]) -> None:
        """Check the connections to these addresses soon."""
        for gone in drop:
            self._bound.pop(gone.key, None)
        self._bound |= {binding.key: frozenset(binding.parts) for binding in put}
        self.look_at(binding.key for binding in (*put, *drop))

    async def resync(self, entries: Sequence[UdpBinding]) -> None:
        """Apply all entries, and those that are missing now."""
        gone = self._bound.keys() - {binding.key for binding in entries}
        self._bound = {binding.key: frozenset(binding.parts) for binding in entries}
        self.look_at(self._bound.keys() | gone)

    async def sweep(self, category: int) -> None:
        """Do nothing: an earlier agent leaves only connections, which `resync` checks."""

    def is_stale(self, connection: Tracked, changed: set[tuple[str, int]]) -> bool:
        """Whether the connection is UDP to one of these addresses, and its Endpoint is gone."""
        return (
            connection.protocol == "udp"
            and (connection.destination, connection.port) in changed
            and not self._is_current(connection)
        )

    def report(self, zone: int, count: int) -> None:
        """Log how many connections were removed."""
        log.info("Forgot UDP connections to Endpoints that are gone", zone=zone, count=count)

    def _is_current(self, connection: Tracked) -> bool:
        """Whether it leads to an Endpoint of now.

        One that is not translated began before there was the Service, or its Endpoint answered directly: if one of this Node
        is chosen next, no packet of it would be translated.
        """
        return server(connection.server, connection.server_port) in self._bound.get(
            (connection.destination, connection.port), ()
        )
