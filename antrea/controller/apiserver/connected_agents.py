"""The number of agents connected to all replicas together: those that do not lead report theirs to the leader."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiohttp import web

from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.outside.http.handlers import Handler

PATH = "/replicas"
AGAIN_SECONDS = 30.0
"""A replica reports its number at least this often."""
KEPT_SECONDS = 3 * AGAIN_SECONDS


class ConnectedAgents:
    """Numbers of this replica, and of others as last reported; a replica that stops reporting is dropped after KEPT_SECONDS."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.own = 0
        self._now = now
        self._others: dict[str, tuple[int, float]] = {}
        self._reported: tuple[int, str] | None = None
        self._reported_at = 0.0

    def record(self, replica: str, number: int) -> None:
        """Record the number of another replica."""
        self._others[replica] = (number, self._now())

    def total(self) -> int:
        """Return the number of agents connected to all replicas."""
        oldest = self._now() - KEPT_SECONDS
        self._others = {name: said for name, said in self._others.items() if said[1] >= oldest}
        return self.own + sum(number for number, _ in self._others.values())

    def needs_report(self, leader: str) -> bool:
        """Whether the number has to be reported (again) to the leader at this address."""
        return self._reported != (self.own, leader) or self._now() - self._reported_at >= AGAIN_SECONDS

    def reported(self, leader: str) -> None:
        """Note that the leader at this address has received the number."""
        self._reported, self._reported_at = (self.own, leader), self._now()

    def handler(self) -> Handler:
        """Return the handler of PUT with the queries `replica` and `agents`."""

        async def handler(request: web.Request) -> web.StreamResponse:
            number = request.query.get("agents", "")
            if not number.isdecimal() or len(number) > 9:
                raise Invalid("agents", "agents must be a number")
            self.record(request.query.get("replica", "")[:100], int(number))
            return web.Response()

        return handler
