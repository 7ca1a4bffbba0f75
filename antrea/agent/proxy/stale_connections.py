"""Forgets UDP connections through Services whose Endpoint is gone, so that their next packet is a first one.

Connection tracking translates each packet of a connection as its first one; UDP has no end, so a client that goes on from the
same port (DNS, QUIC, syslog) would send to a Pod that is gone for as long as it sends.
parity: pkg/agent/proxy/proxier.go, gate CleanupStaleUDPSvcConntrack
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from antrea.errors import Unavailable
from antrea.host.udp_binding import server
from antrea.openflow.fields import Zone
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.engine import Engine
    from antrea.host.udp_binding import UdpBinding
    from antrea.outside.vswitch.conntrack import Tracked

log = klog.logger(__name__)

PAUSE: Final = 1.0
"""Seconds between tries, while ovs-vswitchd is away."""


class Connections(Protocol):
    """What outside.vswitch.conntrack.Conntrack does for us."""

    async def connections(self, zone: int) -> list[Tracked]:
        """All of a zone. Raises Unavailable."""

    async def forget(self, found: list[Tracked]) -> None:
        """Have their next packets be first ones. Raises Unavailable."""


class StaleConnections:
    """Sink of UdpBinding, with a task of its own (`run`): flows and groups stand before connections are looked at."""

    def __init__(self, conntrack: Connections, *, pause: float = PAUSE) -> None:
        """`pause` is in seconds, between tries."""
        self._conntrack = conntrack
        self._pause = pause
        self._bound: dict[tuple[str, int], frozenset[str]] = {}
        self._changed: set[tuple[str, int]] = set()
        """Addresses whose connections are to be looked at."""
        self._news = asyncio.Event()

    async def apply(self, put: Sequence[UdpBinding], drop: Sequence[UdpBinding]) -> None:
        """Look at the connections to these addresses soon."""
        for one in drop:
            self._bound.pop(one.key, None)
        self._bound |= {one.key: frozenset(one.parts) for one in put}
        self._changed |= {one.key for one in (*put, *drop)}
        self._news.set()

    async def resync(self, entries: Sequence[UdpBinding]) -> None:
        """The same of all."""
        gone = self._bound.keys() - {one.key for one in entries}
        self._bound = {one.key: frozenset(one.parts) for one in entries}
        self._changed |= self._bound.keys() | gone
        self._news.set()

    async def sweep(self, category: int) -> None:
        """Nothing stays of an earlier agent but connections, which `resync` looks at."""

    async def run(self, engine: Engine) -> None:
        """Until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            changed, self._changed = self._changed, set()
            try:
                await self._clean(engine, changed)
            except Unavailable as error:
                log.v(2).info("Connections through Services cannot be looked at now", err=str(error))
                self._changed |= changed
                self._news.set()
                await asyncio.sleep(self._pause)

    async def _clean(self, engine: Engine, changed: set[tuple[str, int]]) -> None:
        for kind in (Group, Flow):
            await engine.stand(kind)
        for zone in sorted({Zone.CT_ZONE_V6 if ":" in ip else Zone.CT_ZONE for ip, _ in changed}):
            stale = [
                one
                for one in await self._conntrack.connections(int(zone))
                if one.protocol == "udp"
                and (one.destination, one.port) in changed
                and not self._is_current(one)
            ]
            await self._conntrack.forget(stale)
            if stale:
                log.info(
                    "Forgot UDP connections to Endpoints that are gone", zone=int(zone), count=len(stale)
                )

    def _is_current(self, one: Tracked) -> bool:
        """Whether it leads to an Endpoint of now.

        One that is not translated began before there was the Service, or its Endpoint answered directly: if one of this Node
        is chosen next, no packet of it would be translated.
        """
        return server(one.server, one.server_port) in self._bound.get((one.destination, one.port), ())
