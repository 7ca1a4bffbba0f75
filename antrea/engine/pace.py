"""How long, how many, how often: the numbers of the engine in one place, and the two things that use them up."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

LONG = 2_000
"""Steps after which a run counts as long."""
GROWN = 20_000
"""More objects than before: worth freezing."""


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
        """Run `steps` to the end, letting the loop breathe after every slice."""
        end = time.perf_counter() + self.slice
        for _ in steps:
            if time.perf_counter() >= end:
                await asyncio.sleep(0)
                end = time.perf_counter() + self.slice


def calmly(steps: Iterable[object]) -> Iterator[None]:
    """The same steps, but a long run of them is not interrupted by the garbage collector (0.2 s at 70,000 entries).

    What a long run leaves is there to stay, so later collections need not look at it. Only growth is frozen: what is
    garbage by then is lost for good, and may not add up with time.
    """
    stopped = False
    try:
        for count, _ in enumerate(steps):
            if count == LONG and gc.isenabled():
                stopped = True
                gc.disable()
            yield
    finally:
        if stopped:
            if gc.get_count()[0] > GROWN:
                gc.freeze()
            gc.enable()


async def wait(event: asyncio.Event, seconds: float | None) -> None:
    """Until `event` is set, but no longer than `seconds` (None: for ever)."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
