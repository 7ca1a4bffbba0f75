"""Coalesce concurrent calls: each caller gets the result of a run that started after its call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class SingleFlight:
    """Runs `work` once at a time; calls during a run share the next one. As Go's singleflight, but never with a run under way."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Wait for a run that starts after this call. Raises what that run raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._start(self._running))
        # a cancelled caller does not cancel the run for the others
        await asyncio.shield(self._next)

    async def _start(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._running, self._next = self._next, None
        await self._work()
