"""Time limits, sizes and pauses of the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import msgspec

from antrea.engine.core.time_slice import SLICE


class Pace(msgspec.Struct, frozen=True):
    """Tests shorten the waits and own the clock; programs take the defaults."""

    slice: float = 0.002
    """Seconds that a pass, or the bookkeeping of one sink, may hold the loop in one go."""
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
        """Run `steps` to the end; whenever they yield, as they do after every slice, the event loop runs."""
        SLICE.begin(time.perf_counter() + self.slice)
        for _ in steps:
            await asyncio.sleep(0)
            SLICE.begin(time.perf_counter() + self.slice)


async def wait(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until `event` is set, but no longer than `seconds`; None sets no limit."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
