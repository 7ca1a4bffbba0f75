"""Feed of the ports at which programs of the Node listen, which a Service whose external address is the Node's own does not
get.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable
from antrea.facts.node import LocalAddress
from antrea.facts.service import ListeningPorts, Service
from antrea.outside.log import klog
from antrea.outside.netlink.listening_port import listening_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from antrea.engine import Facts

log = klog.logger(__name__)

LOOK_SECONDS: Final = 5.0
ASKED_SECONDS: Final = 0.5
"""Seconds between two checks whether any Service has an address of the Node."""
HELD_SECONDS: Final = 60.0
"""Seconds for which a program that restarts keeps its port."""


class ListeningPortFeed:
    """Reads the Node's sockets while an external address of a Service is one of the Node's."""

    def __init__(
        self,
        read: Callable[[], Iterable[tuple[str, str, int]]] = listening_ports,
        *,
        proxy_all: bool,
        look_seconds: float = LOOK_SECONDS,
        held_seconds: float = HELD_SECONDS,
    ) -> None:
        self._proxy_all = proxy_all
        self._read, self._look_seconds, self._held_seconds = read, look_seconds, held_seconds
        self._seen: dict[tuple[str, str, int], float] = {}

    async def run(self, facts: Facts) -> None:
        """Read until cancelled, where the agent serves NodePorts at all.

        Synced once the ports are known or known not to matter: until then the flows of an earlier agent stay.
        """
        if not self._proxy_all:
            facts.synced(ListeningPorts)
            return
        while True:
            if not self._is_asked(facts):
                if facts.feeds.has(Service) and facts.feeds.has(LocalAddress):
                    facts.synced(ListeningPorts)
                await asyncio.sleep(ASKED_SECONDS)
                continue
            try:
                ports = frozenset(await self._ports())
            except Unavailable as error:
                log.warning("Failed to read which ports of the Node are in use", err=str(error))
            else:
                facts.put(ListeningPorts(ports))
            facts.synced(ListeningPorts)
            await asyncio.sleep(self._look_seconds)

    def _is_asked(self, facts: Facts) -> bool:
        return any(facts.by(Service, "external_ip", address.ip) for address in facts.all(LocalAddress))

    async def _ports(self) -> Iterable[tuple[str, str, int]]:
        """Return the current ports, and those of a moment ago."""
        listening, now = await asyncio.to_thread(lambda: set(self._read())), time.monotonic()
        self._seen |= dict.fromkeys(listening, now)
        self._seen = {port: seen for port, seen in self._seen.items() if now - seen < self._held_seconds}
        return self._seen
