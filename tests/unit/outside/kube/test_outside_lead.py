"""Work that goes on while a replica leads."""

from __future__ import annotations

import asyncio

import pytest

from antrea.outside.kube.leadership import Leadership


async def test_who_is_cancelled_while_work_ends_is_cancelled() -> None:
    """It would wait to lead again, for ever, and the process with it."""
    leading, began, ends = True, asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.set()
            await asyncio.sleep(0)

    lead = Leadership(lambda: leading)
    running = asyncio.create_task(lead.run_while_leading(work))
    await began.wait()
    leading = False
    lead.changed()
    await ends.wait()
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=60)
    assert done == {running}
    assert running.cancelled()


async def test_what_work_raises_as_it_ends_is_raised() -> None:
    leading, began = True, asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("a bug")

    lead = Leadership(lambda: leading)
    running = asyncio.create_task(lead.run_while_leading(work))
    await began.wait()
    leading = False
    lead.changed()
    with pytest.raises(ValueError, match="a bug"):
        await running
