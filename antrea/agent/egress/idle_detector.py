"""Notices when no connection uses an address of this Node any more that waits for that to go to a better Node."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable
from antrea.facts.egress import Egress, EgressOwner, UnusedAddress
from antrea.features.egress.failback import IDLE_SECONDS
from antrea.outside.log import klog
from antrea.outside.netlink.conntrack import connected

if TYPE_CHECKING:
    from antrea.engine import Facts

log = klog.logger(__name__)

LOOK_SECONDS: Final = 1.0
PAUSES: Final = 20
"""A look that takes longer is followed by a pause so many times as long: looking costs 5 % of a processor at most."""


class IdleFeed:
    """Feed of Unused. The kernel is asked as long as an address waits, and for nothing else."""

    def __init__(self, node: str, idle_seconds: float = IDLE_SECONDS) -> None:
        """`node` is the name of this one."""
        self._node = node
        self._idle_seconds = idle_seconds
        self._used: dict[str, float] = {}
        """When each address that waits was last seen in use, or began to wait, by the monotonic clock."""

    async def run(self, facts: Facts) -> None:
        """For ever."""
        with facts.watch(Egress, EgressOwner) as news:
            while True:
                pause = LOOK_SECONDS
                news.clear()
                if self._waiting(facts):
                    pause = await self._look(facts)
                else:
                    await news.wait()
                await asyncio.sleep(pause)

    def _waiting(self, facts: Facts) -> bool:
        """Bring what is remembered in line with who waits."""
        here = [row.egress for row in facts.all(EgressOwner) if row.home and row.node == self._node]
        ips = {egress.ip for name in here if (egress := facts.get(Egress, name))}
        self._used = {ip: self._used.get(ip, time.monotonic()) for ip in ips}
        for row in facts.all(UnusedAddress):
            if row.ip not in ips:
                facts.drop(UnusedAddress, row.ip)
        return bool(ips)

    async def _look(self, facts: Facts) -> float:
        """Ask once; returns seconds until the next time."""
        began = time.monotonic()
        try:
            used = await asyncio.to_thread(connected, tuple(self._used))
        except Unavailable as why:
            log.warning("Failed to list connections; Egress IPs stay on their Nodes", err=str(why))
            used = {*self._used}
        now = time.monotonic()
        for ip, since in self._used.items():
            if ip in used:
                self._used[ip] = now
                facts.drop(UnusedAddress, ip)
            elif began - since >= self._idle_seconds:
                facts.put(UnusedAddress(ip))
        return max(LOOK_SECONDS, PAUSES * (now - began))
