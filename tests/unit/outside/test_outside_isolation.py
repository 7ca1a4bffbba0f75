"""A part that fails is started again with backoff, and a condition names it until it has run for a while; others go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from antrea.outside.isolation import FIRST_PAUSE, MAX_NAMED, MAX_PAUSE, STEADY_SECONDS, Isolation, failures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Clock:
    """Time moves only by what sleeps."""

    def __init__(self) -> None:
        self.now, self.pauses = 0.0, list[float]()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def isolation(clock: Clock, changed: Callable[[], None] = lambda: None) -> Isolation:
    return Isolation(changed, sleep=clock.sleep, now=lambda: clock.now, chance=lambda low, _: low)


def failing(clock: Clock, *lasts: float) -> Callable[[], Awaitable[None]]:
    """Raises after so many seconds at each start; at the one after these it returns."""
    left = list(lasts)

    async def work() -> None:
        if left:
            clock.now += left.pop(0)
            raise RecursionError("too deep\nby far")

    return work


async def test_a_part_that_fails_is_started_again_with_backoff() -> None:
    clock, changes = Clock(), list[int]()
    parts = isolation(clock, lambda: changes.append(1))
    await parts.keep("toy", failing(clock, *[0.5] * 9))
    assert clock.pauses == [FIRST_PAUSE, 2, 4, 8, 16, 32, MAX_PAUSE, MAX_PAUSE, MAX_PAUSE]
    assert len(changes) == 9
    assert 'antrea_agent_part_failure_count{part="toy"} 9' in parts.text(failures("agent"))


async def test_a_part_that_was_steady_begins_with_the_first_pause() -> None:
    clock = Clock()
    await isolation(clock).keep("toy", failing(clock, 1, 1, 1, STEADY_SECONDS, 1))
    assert clock.pauses == [FIRST_PAUSE, 2, 4, FIRST_PAUSE, 2]


async def test_the_condition_names_the_part_until_it_has_run_for_a_while_and_others_go_on() -> None:
    clock, runs, third, ended = Clock(), list[str](), asyncio.Event(), asyncio.Event()
    parts = isolation(clock)

    async def once_broken() -> None:
        runs.append("toy")
        if len(runs) < 3:
            raise RecursionError("too deep\nby far")
        third.set()
        await ended.wait()

    async with asyncio.TaskGroup() as tasks:
        toy = tasks.create_task(parts.keep("toy", once_broken))
        other = tasks.create_task(parts.keep("other", ended.wait))
        await third.wait()
        assert parts.failed() == "toy failed 2 times, last: RecursionError: too deep by far"
        clock.now += STEADY_SECONDS - 1
        assert parts.failed()
        clock.now += 1
        assert parts.failed() == ""
        assert not toy.done()
        assert not other.done()
        ended.set()


async def test_cancelling_ends_a_part_also_while_it_waits_and_nothing_is_left_of_it() -> None:
    clock, waits = Clock(), asyncio.Event()

    async def wait(_: float) -> None:
        waits.set()
        await asyncio.Event().wait()

    parts = Isolation(sleep=wait, now=lambda: clock.now)
    task = asyncio.create_task(parts.keep("toy", failing(clock, 1)))
    await waits.wait()
    assert "toy failed once" in parts.failed()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert parts.failed() == ""


async def test_the_condition_is_bounded() -> None:
    clock, waits = Clock(), asyncio.Event()

    async def broken() -> None:
        raise ValueError("x" * 10_000)

    async def wait(_: float) -> None:
        waits.set()
        await asyncio.Event().wait()

    parts = Isolation(sleep=wait, now=lambda: clock.now)
    tasks = [asyncio.create_task(parts.keep(f"part {n}", broken)) for n in range(MAX_NAMED + 3)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert parts.failed().endswith("; and 3 more")
    assert len(parts.failed()) < MAX_NAMED * 300
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_task_that_fails_is_counted_and_not_started_again() -> None:
    parts = isolation(Clock())

    async def broken() -> None:
        raise RecursionError

    await parts.once("Event", broken())
    assert 'antrea_agent_part_failure_count{part="task"} 1' in parts.text(failures("agent"))
    assert parts.failed() == ""
