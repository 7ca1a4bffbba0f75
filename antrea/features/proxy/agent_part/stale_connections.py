"""Forgets UDP connections through Services whose Endpoint is gone, so that their next packet is a first one.

Connection tracking translates each packet of a connection as its first one; UDP has no end, so a client that goes on from the
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
        """Look at the connections to these addresses soon."""
        for one in drop:
            self._bound.pop(one.key, None)
        self._bound |= {one.key: frozenset(one.parts) for one in put}
        self.look_at(one.key for one in (*put, *drop))

    async def resync(self, entries: Sequence[UdpBinding]) -> None:
        """The same of all."""
        gone = self._bound.keys() - {one.key for one in entries}
        self._bound = {one.key: frozenset(one.parts) for one in entries}
        self.look_at(self._bound.keys() | gone)

    async def sweep(self, category: int) -> None:
        """Nothing stays of an earlier agent but connections, which `resync` looks at."""

    def is_stale(self, one: Tracked, changed: set[tuple[str, int]]) -> bool:
        """Whether it is UDP to one of these addresses, and its Endpoint is gone."""
        return one.protocol == "udp" and (one.destination, one.port) in changed and not self._is_current(one)

    def report(self, zone: int, count: int) -> None:
        """As the base class."""
        log.info("Forgot UDP connections to Endpoints that are gone", zone=zone, count=count)

    def _is_current(self, one: Tracked) -> bool:
        """Whether it leads to an Endpoint of now.

        One that is not translated began before there was the Service, or its Endpoint answered directly: if one of this Node
        is chosen next, no packet of it would be translated.
        """
        return server(one.server, one.server_port) in self._bound.get((one.destination, one.port), ())
