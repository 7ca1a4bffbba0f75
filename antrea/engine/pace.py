"""How long, how many, how often: the numbers of the engine in one place, and the two things that use them up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import msgspec


class Pace(msgspec.Struct, frozen=True):
    """Tests shorten the waits and own the clock; programs take the defaults."""

    slice: float = 0.004
    """Seconds that a pass may hold the loop in one go."""
    batch: int = 5000
    """Entries in one bulk call to a sink."""
    first: float = 0.2
    """Seconds until the first retry; doubles up to `most`."""
    most: float = 30.0
    patience: float = 60.0
    """Seconds after which an unsynced feed is named."""
    clock: Callable[[], float] = time.monotonic

    def delay(self, tries: int) -> float:
        """Seconds to wait after `tries` failures in a row."""
        return min(self.first * 2.0 ** min(tries, 30), self.most)

    async def drive(self, steps: Iterable[object]) -> None:
        """Run `steps` to the end, letting the loop breathe after every slice."""
        end = time.perf_counter() + self.slice
        for _ in steps:
            if time.perf_counter() >= end:
                await asyncio.sleep(0)
                end = time.perf_counter() + self.slice


async def wait(event: asyncio.Event, seconds: float | None) -> None:
    """Until `event` is set, but no longer than `seconds` (None: for ever)."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
