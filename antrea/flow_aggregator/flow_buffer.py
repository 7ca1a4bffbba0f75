"""The last records, for who follows them: one that begins gets those that are there, and one that falls behind loses the oldest."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class FlowBuffer(Generic[T]):
    """A ring; records are numbered from 0."""

    def __init__(self, size: int) -> None:
        self._ring: list[T | None] = [None] * size
        self.end = 0
        """The number of the next one."""
        self._awaited: asyncio.Event | None = None

    def offer(self, record: T) -> None:
        """Add one; the oldest makes room."""
        self._ring[self.end % len(self._ring)] = record
        self.end += 1
        if self._awaited:
            self._awaited.set()
            self._awaited = None

    def after(self, number: int, most: int) -> tuple[list[T], int]:
        """At most so many from this number on, and how many before them are gone."""
        first = max(number, self.end - len(self._ring))
        wanted = range(first, min(first + most, self.end))
        records = (self._ring[at % len(self._ring)] for at in wanted)
        return [record for record in records if record is not None], first - number

    async def wait(self, number: int) -> None:
        """Wait until the record of this number is there."""
        while self.end <= number:
            self._awaited = self._awaited or asyncio.Event()
            await self._awaited.wait()
