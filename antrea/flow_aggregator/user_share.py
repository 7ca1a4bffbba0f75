"""Work of users on what all of them share: a bounded number at a time, one of each user, so that no user waits behind the queue of another."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from antrea.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class UserShare:
    """Places for `at_a_time` pieces of work."""

    def __init__(self, at_a_time: int) -> None:
        self._places = asyncio.Semaphore(at_a_time)
        self._waiting: dict[str, tuple[asyncio.Lock, int]] = {}
        """The turn of each user, and how many wait for it or have it."""

    @contextlib.asynccontextmanager
    async def place(self, user: str, seconds: float) -> AsyncIterator[None]:
        """Have a place while the block runs. Raises Unavailable: there was none in time."""
        lock, count = self._waiting.get(user, (asyncio.Lock(), 0))
        self._waiting[user] = lock, count + 1
        try:
            async with contextlib.AsyncExitStack() as held:
                try:
                    async with asyncio.timeout(seconds):
                        # the places are given in the order of requests: one of each user waits for them at most
                        await held.enter_async_context(lock)
                        await held.enter_async_context(self._places)
                except TimeoutError:
                    raise Unavailable(
                        f"no answer began within {seconds:.0f} s: you or other users ask for the same, try again"
                    ) from None
                yield
        finally:
            lock, count = self._waiting.pop(user)
            if count > 1:
                self._waiting[user] = lock, count - 1
