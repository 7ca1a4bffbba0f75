"""Connections of Nodes and external hosts that began before antreaProxy.proxyAll was turned on or off, and continue as they
began.

With proxyAll these are connections that kube-proxy's rules translate in the host; without it, those that the switch translates.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable
from antrea.facts.service import EarlierConnection
from antrea.host.pod_cidr import gateway_ip, held
from antrea.openflow.fields import Zone
from antrea.openflow.tracked_connection import tracked_connections
from antrea.outside.log import klog
from antrea.outside.netlink.conntrack import OPEN_STATES
from antrea.outside.netlink.translated_connection import PROTOCOLS, translated_connections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import ThisNode
    from antrea.outside.vswitch.conntrack import Conntrack

log = klog.logger(__name__)

LOOK_SECONDS: Final = 30.0
PAUSE: Final = 1.0
"""Seconds between tries, while connections cannot be listed."""
MAX_CONNECTIONS: Final = 10_000
"""Maximum number of connections that are kept; others end."""


class EarlierConnectionFeed:
    """Feed of EarlierConnection."""

    def __init__(
        self, node: ThisNode, switch: Conntrack, *, proxy_all: bool, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self._node, self._switch, self._proxy_all = node, switch, proxy_all
        self._look_seconds = look_seconds

    async def run(self, facts: Facts) -> None:
        """Maintain the rows until all of these connections have ended."""
        rows = {row.key: row for row in islice(await self._listed(), MAX_CONNECTIONS)}
        facts.replace(EarlierConnection, rows.values())
        facts.synced(EarlierConnection)
        if rows:
            log.info("Connections continue with the proxy they began with", count=len(rows))
        while rows:
            await asyncio.sleep(self._look_seconds)
            there = {row.key for row in await self._listed()}
            for key in rows.keys() - there:
                facts.drop(EarlierConnection, key)
            rows = {key: row for key, row in rows.items() if key in there}

    async def _listed(self) -> Iterator[EarlierConnection]:
        while True:
            try:
                return await (self._of_host() if self._proxy_all else self._of_switch())
            except Unavailable as error:
                log.v(2).info("Connections that began earlier cannot be listed now", err=str(error))
                await asyncio.sleep(PAUSE)

    async def _of_host(self) -> Iterator[EarlierConnection]:
        connections = await asyncio.to_thread(lambda: list(translated_connections()))
        return (EarlierConnection(*connection, by_switch=False) for connection in connections)

    async def _of_switch(self) -> Iterator[EarlierConnection]:
        zones = (Zone.CT_ZONE_V6 if ipv6 else Zone.CT_ZONE for ipv6 in sorted(self._node.families))
        texts = [await self._switch.dump(int(zone)) for zone in zones]
        return (row for text in texts for row in switch_connections(text, self._node))


def switch_connections(dump: str, node: ThisNode) -> Iterator[EarlierConnection]:
    """Open connections that the switch translates for anybody but Pods of this Node."""
    gateways = {gateway_ip(cidr) for cidr in node.pod_cidrs}
    for tracked in tracked_connections(dump):
        number, source, source_port, server, server_port, _ = tracked.key
        name = PROTOCOLS.get(number)
        is_open = tracked.state in OPEN_STATES or not tracked.state
        is_translated = (server, server_port) != (tracked.destination, tracked.port)
        is_pod = source not in gateways and held(source, node.pod_cidrs)
        if name and is_open and is_translated and not is_pod:
            yield EarlierConnection(
                name, source, source_port, tracked.destination, tracked.port, by_switch=True
            )
