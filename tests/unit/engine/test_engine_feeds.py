"""Which kinds count as listed, while a pass that pauses takes their rows in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from engine_world import Pod, Policy

from antrea.engine import Facts
from antrea.engine.core.time_slice import SLICE

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pausing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step pauses, as on a busy machine."""
    monkeypatch.setattr(SLICE, "end", SLICE.end)
    SLICE.begin(0.0)


def taken_in(facts: Facts) -> Iterator[None]:
    """A pass that has paused after the row of a Pod, whose kind has synced before."""
    facts.put(Pod("a"))
    facts.synced(Pod)
    drain = facts.drain()
    next(drain)
    return drain


def rest(drain: Iterator[None]) -> None:
    for _ in drain:
        pass


@pytest.mark.usefixtures("pausing")
def test_a_kind_has_synced_also_while_a_pass_takes_its_rows_in() -> None:
    facts = Facts()
    drain = taken_in(facts)
    assert facts.feeds.has(Pod)
    assert Pod not in facts.feeds.synced
    rest(drain)
    assert Pod in facts.feeds.synced


@pytest.mark.usefixtures("pausing")
def test_a_kind_whose_watch_breaks_while_a_pass_takes_its_rows_in_has_not_synced() -> None:
    facts = Facts()
    drain = taken_in(facts)
    facts.lost(Pod)
    assert not facts.feeds.has(Pod)
    rest(drain)
    assert not facts.feeds.has(Pod)
    facts.synced(Pod)
    rest(facts.drain())
    assert Pod in facts.feeds.synced


@pytest.mark.usefixtures("pausing")
async def test_who_waits_for_two_lists_goes_on_when_the_second_ends_while_a_pass_takes_the_first_in() -> None:
    facts = Facts()

    async def both() -> None:
        with facts.watch(Pod, Policy) as changed:
            while not (facts.feeds.has(Pod) and facts.feeds.has(Policy)):
                changed.clear()
                await changed.wait()

    waiting = asyncio.create_task(both())
    await asyncio.sleep(0)
    drain = taken_in(facts)
    facts.synced(Policy)
    await asyncio.sleep(0)  # the waiter looks now, and there is no further write of these kinds
    await asyncio.sleep(0)
    rest(drain)
    await asyncio.wait_for(waiting, 1)
