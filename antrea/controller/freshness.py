"""Runs something anew for all who ask at about the same time: each gets a run that began after it had asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Rounds:
    """`work` runs once at a time; who asks while it runs waits for the next run, with all others who do."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def ask(self) -> None:
        """Raises what that run raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running))
        # who no longer waits does not end it for the others
        await asyncio.shield(self._next)

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._running, self._next = self._next, None
        await self._work()
