"""Batches of a sink while passes go on: a run that fills one pauses, and a pass that ends meanwhile changes what is pending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from engine_world import Flow, Pod, Status, status, until

from antrea.engine import Unit
from antrea.engine.core.order import Order, Slot
from antrea.engine.core.place import Table
from antrea.engine.core.sink_queue import Batch, SinkQueue
from antrea.engine.core.time_slice import SLICE
from antrea.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_world import Run

    Fill = Callable[[SinkQueue, Batch], Iterator[None]]


def next_batch(queue: SinkQueue, batch: Batch) -> Iterator[None]:
    return queue.fill(batch, 0.0, 10, 10)


def replay(queue: SinkQueue, batch: Batch) -> Iterator[None]:
    return queue.fill_replay(batch)


@pytest.mark.parametrize(
    ("fill", "drop", "rank"), [(next_batch, True, 50), (next_batch, False, 50), (replay, False, 60)]
)
def test_an_entry_that_a_pass_changes_while_its_batch_is_filled_is_in_that_once(
    monkeypatch: pytest.MonkeyPatch, fill: Fill, drop: bool, rank: int
) -> None:
    monkeypatch.setattr(SLICE, "end", SLICE.end)
    SLICE.begin(0.0)  # every step pauses
    order = Order(lambda: None)
    queue, table = SinkQueue(order, None), Table(Flow)
    queue.tables.append(table)
    first = Slot(True, order.open(), drop, -50 if drop else 50)
    for key in "ab":
        queue.place(table.cell(key), Flow(key, ("old",)), first)
    order.close()
    second = Slot(True, order.open(), False, rank)
    queue.place(table.cell("c"), Flow("c", rank=rank), second)
    batch = Batch()
    steps = fill(queue, batch)
    while not batch.cells:
        next(steps)
    queue.place(table.cell("a"), Flow("a", ("new",), rank=rank), second)
    order.close()
    for _ in steps:
        pass
    keys: list[Any] = [cell.key for cell in batch.cells]
    assert sorted(set(keys)) == sorted(keys)
    assert queue.fresh[second][table.cell("a")] == Flow("a", ("new",), rank=rank)


class CountedRows(dict[Any, Any]):
    """Changes of a slot; what was taken from the front of a dict is passed over again by each iteration."""

    iterations = 0

    def __iter__(self) -> Iterator[Any]:
        self.iterations += 1
        return super().__iter__()


def test_a_replay_passes_over_the_changes_of_a_slot_once_however_many_there_are() -> None:
    order = Order(lambda: None)
    queue, table = SinkQueue(order, None), Table(Flow)
    queue.tables.append(table)
    slot = Slot(True, order.open(), False, 50)
    for number in range(3000):
        queue.place(table.cell(str(number)), Flow(str(number)), slot)
    order.close()
    rows = queue.fresh[slot] = CountedRows(queue.fresh[slot])
    batch = Batch()
    for _ in queue.fill_replay(batch):
        pass
    assert (len(batch.put), rows.iterations) == (3000, 1)


@pytest.mark.parametrize("answer", [Refused([Status("a", "1")], "no"), TimeoutError()], ids=["no", "timeout"])
async def test_a_failure_with_a_status_that_was_withdrawn_meanwhile_leaves_nothing(
    world: Run, answer: Exception
) -> None:
    def on_call() -> None:
        raise answer

    w = world((Unit(Pod, status),))
    await w.engine.quiet()
    w.api.gate.clear()
    w.api.on_call = on_call
    w.facts.put(Pod("a", 1))
    await until(lambda: w.api.calls[-1:] == [("apply", ["a"], [])])
    w.facts.drop(Pod, "a")
    await until(lambda: w.engine._evaluator.covered == w.facts.writes)
    w.api.gate.set()
    await w.engine.quiet()
    assert (w.engine.errors.standing, w.engine.empty) == ({}, True)
