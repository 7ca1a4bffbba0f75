"""How many agents all replicas together serve: those that do not lead tell the leader their number."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiohttp import web

from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.outside.serving import Handler

PATH = "/replicas"
AGAIN_SECONDS = 30.0
"""A replica tells its number at least so often."""
KEPT_SECONDS = 3 * AGAIN_SECONDS


class Crowd:
    """Of this replica, and of others as they said last; who says nothing any more counts no more."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.own = 0
        self._now = now
        self._others: dict[str, tuple[int, float]] = {}
        self._told: tuple[int, str] | None = None
        self._told_at = 0.0

    def hear(self, replica: str, number: int) -> None:
        """Another replica says so."""
        self._others[replica] = (number, self._now())

    def total(self) -> int:
        """Of all replicas."""
        oldest = self._now() - KEPT_SECONDS
        self._others = {name: said for name, said in self._others.items() if said[1] >= oldest}
        return self.own + sum(number for number, _ in self._others.values())

    def owes(self, leader: str) -> bool:
        """Whether the leader at this address has to be told the number (anew)."""
        return self._told != (self.own, leader) or self._now() - self._told_at >= AGAIN_SECONDS

    def told(self, leader: str) -> None:
        """It has been told."""
        self._told, self._told_at = (self.own, leader), self._now()

    def handler(self) -> Handler:
        """Of PUT with the queries `replica` and `agents`."""

        async def handler(request: web.Request) -> web.StreamResponse:
            number = request.query.get("agents", "")
            if not number.isdecimal() or len(number) > 9:
                raise Invalid("agents", "agents must be a number")
            self.hear(request.query.get("replica", "")[:100], int(number))
            return web.Response()

        return handler
