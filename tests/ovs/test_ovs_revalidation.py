"""A change of flows holds for all packets once the switch has looked through the cache of its datapath."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from antrea.errors import Unavailable
from antrea.outside.vswitch.revalidation import Revalidation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ovs_bridge import OvsBridge

EVERY = 0.5
"""Seconds between passes without a cause."""


@pytest.fixture
async def revalidation(ovs: OvsBridge) -> AsyncIterator[Revalidation]:
    found = Revalidation(ovs.process.directory / "br-int.mgmt", patience=60)
    async with running(found):
        yield found


@contextlib.asynccontextmanager
async def running(found: Revalidation) -> AsyncIterator[None]:
    task = asyncio.create_task(found.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def waits(found: Revalidation) -> None:
    with found.watched():
        await found.completed()


async def test_passes_are_caused_where_they_are_waited_for(
    ovs: OvsBridge, revalidation: Revalidation
) -> None:
    flows, begin = ovs.dump(), time.monotonic()
    for _ in range(20):
        await waits(revalidation)
    assert time.monotonic() - begin < 20 * EVERY / 2
    assert ovs.dump() == flows


async def test_those_who_wait_at_the_same_time_share_passes(revalidation: Revalidation) -> None:
    await waits(revalidation)
    before = revalidation._passes
    await asyncio.gather(*(waits(revalidation) for _ in range(50)))
    assert revalidation._passes - before < 10


async def test_nothing_is_complete_without_a_pass(ovs: OvsBridge, revalidation: Revalidation) -> None:
    await waits(revalidation)
    ovs.appctl("revalidator/pause")
    try:
        waiting = asyncio.create_task(waits(revalidation))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 2 * EVERY)
    finally:
        ovs.appctl("revalidator/resume")
    await asyncio.wait_for(waiting, 60)


async def test_a_switch_that_is_away_is_told(tmp_path: Path) -> None:
    found = Revalidation(tmp_path / "br-int.mgmt", patience=60)
    async with running(found):
        with pytest.raises(Unavailable):
            await asyncio.wait_for(waits(found), 30)
