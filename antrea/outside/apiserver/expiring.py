"""Remembers answers for a while: of a bounded number of questions, and each asked once however many wait for it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

T = TypeVar("T")


class Expiring(Generic[T]):
    """Answers live for `seconds`; of more than `most` the one that was asked for longest ago goes."""

    def __init__(self, seconds: float, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._most = most
        self._now = now
        self._known: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._pending: dict[Hashable, asyncio.Task[T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer that is remembered, or a new one. What `ask` raises is not remembered."""
        until, value = self._known.get(key, (0.0, None))
        if value is not None and self._now() < until:
            self._known.move_to_end(key)
            return value
        task = self._pending.get(key)
        if task is None:
            task = asyncio.ensure_future(ask())
            self._pending[key] = task
            task.add_done_callback(lambda done: self._learn(key, done))
        # one who gives up does not end the question of others
        return await asyncio.shield(task)

    def has(self, key: Hashable) -> bool:
        """Whether the answer is remembered."""
        return self._now() < self._known.get(key, (0.0, None))[0]

    def _learn(self, key: Hashable, done: asyncio.Task[T]) -> None:
        self._pending.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        self.learn(key, done.result())

    def learn(self, key: Hashable, value: T) -> None:
        """Remember an answer."""
        self._known[key] = (self._now() + self._seconds, value)
        self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
