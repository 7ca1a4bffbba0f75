"""Detector of addresses that no connection uses any more, so that they may move to a better Node."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable
from antrea.facts.egress import Egress, EgressOwner, UnusedAddress
from antrea.facts.external_ip import ExternalIPOwner
from antrea.facts.family import is_ipv6
from antrea.features.external_ip_pool.pool import IDLE_SECONDS
from antrea.openflow.fields import Zone
from antrea.openflow.tracked_connection import tracked_connections
from antrea.outside.log import klog
from antrea.outside.netlink.conntrack import OPEN_STATES, connected

if TYPE_CHECKING:
    from collections.abc import Collection

    from antrea.engine import Facts
    from antrea.outside.vswitch.conntrack import Conntrack

log = klog.logger(__name__)

LOOK_SECONDS: Final = 1.0
PAUSES: Final = 20
"""Factor of the pause after a look: looking takes 5 % of a processor at most."""


class IdleFeed:
    """Feed of UnusedAddress, for Egresses and Services. The kernel is queried only while an address waits."""

    def __init__(
        self, node: str, idle_seconds: float = IDLE_SECONDS, *, switch: Conntrack | None = None
    ) -> None:
        """`node` is the name of this one; `switch` has the connections to Services that it translates, None if none."""
        self._node = node
        self._idle_seconds = idle_seconds
        self._switch = switch
        self._used: dict[str, float] = {}
        """Time at which each waiting address was last in use, or began to wait, by the monotonic clock."""
        self._external: frozenset[str] = frozenset()
        """Waiting addresses of Services: connections go to these, and leave by the others."""

    async def run(self, facts: Facts) -> None:
        """Run until cancelled."""
        with facts.watch(Egress, EgressOwner, ExternalIPOwner) as news:
            while True:
                pause = LOOK_SECONDS
                news.clear()
                if self._waiting(facts):
                    pause = await self._check_once(facts)
                else:
                    await news.wait()
                await asyncio.sleep(pause)

    def _waiting(self, facts: Facts) -> bool:
        """Update the remembered addresses to those that wait."""
        here = [row.egress for row in facts.all(EgressOwner) if row.home and row.node == self._node]
        ips = {egress.ip for name in here if (egress := facts.get(Egress, name))}
        owners = facts.all(ExternalIPOwner)
        self._external = frozenset(row.ip for row in owners if row.home and row.node == self._node)
        self._used = {ip: self._used.get(ip, time.monotonic()) for ip in ips | self._external}
        for row in facts.all(UnusedAddress):
            if row.ip not in self._used:
                facts.drop(UnusedAddress, row.ip)
        return bool(self._used)

    async def _check_once(self, facts: Facts) -> float:
        """Check once; return the seconds until the next time."""
        began = time.monotonic()
        try:
            egress = self._used.keys() - self._external
            used = await asyncio.to_thread(connected, egress)
            # a connection of another gateway may have begun here with an answer
            used |= await asyncio.to_thread(connected, egress - used, to=True, forwarded=True)
            used |= await asyncio.to_thread(connected, self._external, to=True)
            used |= await self._in_switch(self._external - used)
        except Unavailable as error:
            log.warning("Failed to list connections; addresses stay on their Nodes", err=str(error))
            used = {*self._used}
        now = time.monotonic()
        for ip, since in self._used.items():
            if ip in used:
                self._used[ip] = now
                facts.drop(UnusedAddress, ip)
            elif began - since >= self._idle_seconds:
                facts.put(UnusedAddress(ip))
        return max(LOOK_SECONDS, PAUSES * (now - began))

    async def _in_switch(self, ips: Collection[str]) -> set[str]:
        """Return the addresses to which a connection through the switch goes. Raises Unavailable."""
        used: set[str] = set()
        if self._switch is None:
            return used
        for ipv6 in sorted({is_ipv6(ip) for ip in ips}):
            text = await self._switch.dump(int(Zone.CT_ZONE_V6 if ipv6 else Zone.CT_ZONE))
            used |= {
                connection.destination
                for connection in tracked_connections(text)
                if connection.destination in ips and (connection.state in OPEN_STATES or not connection.state)
            }
        return used
