"""When what waits for a destination is written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from antrea.apis.flow import FlowRecord
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
