"""When what waits for a destination is written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from antrea.apis.flow import FlowRecord
from antrea.flow_aggregator import destination
from antrea.flow_aggregator.destination import Destination

if TYPE_CHECKING:
    from collections.abc import Sequence


class Written(list[int]):
    """Sizes of the batches."""

    async def write(self, records: Sequence[FlowRecord]) -> None:
        self.append(len(records))

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("size", "count"), [(1000, 10), (12, 6)])
async def test_a_batch_that_is_full_is_not_kept_until_the_interval_ends(size: int, count: int) -> None:
    written = Written()
    to = Destination("store", written, size, interval=60, most=10)
    running = asyncio.create_task(to.run())
    for _ in range(count - 1):
        to.offer(FlowRecord())
    await asyncio.sleep(0.05)
    assert written == []
    to.offer(FlowRecord())
    async with asyncio.timeout(10):
        while not written:  # noqa: ASYNC110 (another task writes)
            await asyncio.sleep(0.01)
    assert written == [count]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Held(Written):
    """Writes nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()

    async def write(self, records: Sequence[FlowRecord]) -> None:
        await self.may.wait()
        await super().write(records)


async def test_more_is_offered_when_a_quarter_is_free_and_one_that_is_slow_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(destination, "TIMEOUT", 0.1)
    output = Held()
    to = Destination("store", output, 8, interval=60, most=4)
    running = asyncio.create_task(to.run())
    now = asyncio.get_running_loop().time
    for _ in range(8):
        to.offer(FlowRecord())
    begun = now()
    await to.room()
    assert 0.09 < now() - begun < 5
    to.offer(FlowRecord())
    to.offer(FlowRecord())
    async with asyncio.timeout(0.05):
        await to.room()  # it is slow
    output.may.set()
    while to.waiting:  # noqa: ASYNC110 (another task writes)
        await asyncio.sleep(0.01)
    monkeypatch.setattr(destination, "TIMEOUT", 10.0)
    output.may.clear()
    for _ in range(8):
        to.offer(FlowRecord())
    asyncio.get_running_loop().call_later(0.1, output.may.set)
    begun = now()
    await to.room()
    assert 0.05 < now() - begun < 5
    assert to.dropped == 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Failing(Held):
    """Takes its time, and fails."""

    async def write(self, records: Sequence[FlowRecord]) -> None:
        await self.may.wait()
        raise OSError("no such host")


async def test_one_that_fails_is_not_waited_for_from_then_on() -> None:
    output = Failing()
    to = Destination("store", output, 8, interval=60, most=4)
    running = asyncio.create_task(to.run())
    for _ in range(8):
        to.offer(FlowRecord())
    loop = asyncio.get_running_loop()
    loop.call_later(0.05, output.may.set)
    async with asyncio.timeout(2):
        await to.room()
    assert to.trouble == "no such host"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
