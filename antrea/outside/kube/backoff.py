"""Exponential backoff with jitter, reset once a connection has lasted for a while."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = klog.logger(__name__)

FIRST_PAUSE, MAX_PAUSE = 0.8, 30.0
"""Seconds between tries, doubled each time and stretched by chance up to twofold: client-go's reflector."""
STOOD_SECONDS = 1.0
"""A watch that lasted less has failed, as in client-go."""


class TooManyRequests(Unavailable):
    """429: the server wants a retry, as it does while it begins to serve a new kind of object."""


class Backoff:
    """Pauses that double with each retry, up to `longest`; `sleep`, `chance` and `now` are clock and randomness."""

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[None]],
        chance: Callable[[float, float], float],
        now: Callable[[], float] = time.monotonic,
        *,
        longest: float = MAX_PAUSE,
    ) -> None:
        self._sleep = sleep
        self._chance = chance
        self._now = now
        self._longest = longest
        self._opened = math.inf
        self._seconds = FIRST_PAUSE
        self.interrupted = False
        """The server was unavailable, and a full list has not been made since."""

    def opened(self, trouble: Callable[[str], None]) -> None:
        """Called when a watch is established. If it then lasts STOOD_SECONDS, the pause is reset even if no event arrived.

        Otherwise pauses of a quiet watch would grow where something closes idle connections, as load balancers do.
        """
        self._opened = self._now()
        trouble("")

    async def wait(self) -> None:
        if self._now() - self._opened >= STOOD_SECONDS:
            self.reset()
        self._opened = math.inf
        seconds = min(self._seconds, self._longest)
        self._seconds = min(self._seconds * 2, self._longest)
        await self._sleep(self._chance(seconds, seconds * 2))

    def reset(self) -> None:
        self._seconds = FIRST_PAUSE

    def interrupts(self, path: str, why: Exception) -> None:
        """Log an interruption; a retry that the server asked for is a warning only after pauses reached their longest."""
        self.interrupted = True
        if isinstance(why, TooManyRequests) and self._seconds < self._longest:
            log.v(2).info("Retrying a watch; kube-apiserver is busy", path=path, err=str(why))
        else:
            log.warning("Watch is interrupted", path=path, err=str(why))

    def forgotten(self) -> None:
        """A full list is needed: reset the pause, however long the server was away."""
        if self.interrupted:
            self.interrupted = False
            self.reset()
