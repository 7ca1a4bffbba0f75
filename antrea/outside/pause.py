"""How long a client waits from try to try: longer and longer, unless what it had stood for a while."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.outside import klog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = klog.logger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.8, 30.0
"""Seconds between tries, doubled each time and stretched by chance up to twofold: client-go's reflector."""
STOOD_SECONDS = 1.0
"""A watch that stood for less failed, as client-go has it."""


class Busy(Unavailable):
    """429: the server asks to come again, as it does while it begins to serve a new kind of object."""


class Pause:
    """Grows from try to try, up to `longest`; `sleep`, `chance` and `now` are the clock and the dice."""

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[None]],
        chance: Callable[[float, float], float],
        now: Callable[[], float] = time.monotonic,
        *,
        longest: float = LONGEST_PAUSE,
    ) -> None:
        self._sleep = sleep
        self._chance = chance
        self._now = now
        self._longest = longest
        self._opened = math.inf
        self._seconds = FIRST_PAUSE
        self.interrupted = False
        """There was no server to talk to, and what it knows has not been asked since."""

    def opened(self, trouble: Callable[[str], None]) -> None:
        """A watch was taken up, so that there is no `trouble`: if it stands for a while, the next pause is a first one, though nothing was told.

        What closes idle connections (a load balancer) would else have a quiet watch wait longer and longer.
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
        """Say so, unless the server only asks to come again and has not asked for long."""
        self.interrupted = True
        if isinstance(why, Busy) and self._seconds < self._longest:
            log.v(2).info("A watch has to wait for kube-apiserver", path=path, err=str(why))
        else:
            log.warning("Watch is interrupted", path=path, err=str(why))

    def forgotten(self) -> None:
        """All has to be asked anew: how long a server was away is no reason to wait as long for it."""
        if self.interrupted:
            self.interrupted = False
            self.reset()
