"""Run the sinks: each in a task of its own, with its own retries, replay and sweeps."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from antrea.engine.core.sink_queue import Batch, SinkQueue
from antrea.engine.entry import REPORT
from antrea.engine.pace import Pace, wait
from antrea.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from antrea.engine.core.ledger import Ledger
    from antrea.engine.core.place import Cell
    from antrea.engine.entry import Sink
    from antrea.engine.error_log import Errors
    from antrea.facts.fact import Fact


class SinkGroup:
    """State shared by all workers: when to start, which kinds have synced, and the workers themselves."""

    def __init__(self, sweeps: Mapping[int, tuple[type[Fact], ...]]) -> None:
        self.sweeps = sweeps
        self.started = False
        """The first pass is over."""
        self.synced: Collection[type[Fact]] = ()
        self.workers: list[SinkWorker] = []

    def start(self) -> None:
        """Replays go in the order of ranks from here."""
        for worker in self.workers:
            worker.rank = min(worker.rank, worker.queue.lowest_rank())
        self.started = True

    def wake(self) -> None:
        for worker in self.workers:
            worker.awake.set()

    @property
    def ready(self) -> list[int]:
        """Categories whose feeds have synced."""
        return [
            category for category, kinds in self.sweeps.items() if all(kind in self.synced for kind in kinds)
        ]

    @property
    def complete(self) -> bool:
        """Every sink replayed and swept everything."""
        return self.started and all(not c.lost and len(c.swept) == len(self.sweeps) for c in self.workers)


class SinkWorker:
    """Take batches from the queue of one sink to the sink, and its answers to the ledger."""

    def __init__(self, queue: SinkQueue, sink: Sink, ledger: Ledger, errors: Errors, pace: Pace) -> None:
        self.queue = queue
        self.sink = sink
        self.rank = REPORT
        """The smallest rank it ever had to put: in this order sinks replay, and in reverse they sweep."""
        self.awake = asyncio.Event()
        self.lost = True
        """The sink has to replay everything before it can take differences."""
        self.swept: set[int] = set()
        self.busy = False
        """A call to the sink is under way."""
        self.sweeping = False
        """Whether the present call removes what an earlier process left."""
        self._name = f"sink {type(sink).__name__}"
        self._ledger = ledger
        self._errors = errors
        self._pace = pace
        self._replaying = False
        self._failures = 0
        self._full = sys.maxsize if queue.whole else pace.batch
        self._most = self._full
        """Entries in one retry: halves when the outcome is unknown, doubles when it is known, so that one bad entry is soon alone."""
        self._not_before = 0.0
        """When a failed replay or sweep may be tried again."""

    def __str__(self) -> str:
        """The name in log lines."""
        return self._name

    async def run(self, shared: SinkGroup, answered: Callable[[], None]) -> None:
        """Run until cancelled; `answered()` is called after every answer of the sink."""
        while True:
            self.awake.clear()
            self.busy = True
            now = self._pace.clock()
            worked = await self._step(shared, now)
            self.busy = False
            if worked:
                shared.wake()  # a replay or sweep of another may have waited for this one
                answered()
            else:
                await wait(self.awake, self._rest(now))

    def replay(self) -> None:
        """The sink lost what it had (its daemon restarted): replay, then sweep again."""
        self.lost, self._not_before = True, 0.0
        self.swept.clear()
        self.queue.lose()
        self.awake.set()

    async def _step(self, shared: SinkGroup, now: float) -> bool:
        if self.lost:
            if not shared.started or now < self._not_before or not self._first(shared):
                return False
            self._replaying = True
            await self._replay()
            self._replaying = False
            return True
        batch = Batch()
        await self._pace.drive(self.queue.fill(batch, now, self._pace.batch, self._most))
        if batch.cells:
            await self._apply(batch)
            return True
        if now >= self._not_before and (category := self._to_sweep(shared)) is not None:
            await self._sweep(category)
            return True
        if self.queue.quiet and now >= self._not_before:
            self._errors.clear(self)  # what failed is not wanted any more
        return False

    def _rest(self, now: float) -> float | None:
        """Seconds from `now`, when there was nothing to do, until there may be something for which it is not woken.

        A later clock would overlook what has become due since that look.
        """
        due = [when - now for when in (self.queue.next_due(),) if when is not None and not self.lost]
        if self._not_before > now:
            due.append(self._not_before - now)
        return min(due, default=None)

    def _first(self, shared: SinkGroup) -> bool:
        """Whether sinks of smaller rank have at least tried to replay."""
        return not any(
            (other.lost or other._replaying) and not other._failures and other.rank < self.rank
            for other in shared.workers
        )

    def _to_sweep(self, shared: SinkGroup) -> int | None:
        for category in shared.ready:
            later = (
                c
                for c in shared.workers
                if self.rank < c.rank < REPORT and category not in c.swept and not c._failures
            )
            if category not in self.swept and not any(later) and not self.queue.outstanding(category):
                return category
        return None

    async def _apply(self, batch: Batch) -> None:
        self.rank = min(self.rank, *(slot.rank for slot in set(batch.slots)))
        try:
            await self.sink.apply(batch.put, batch.drop)
        except Refused as error:
            await self._refused(batch, error)
        except Exception as error:  # noqa: BLE001 (the outcome is unknown, so the keys are applied again)
            await self._unknown(batch, error)
        except BaseException:
            self._back(batch)
            raise
        else:
            await self._confirmed(batch)

    async def _replay(self) -> None:
        batch = Batch()
        self.lost = False  # unless it is lost once more while it replays
        await self._pace.drive(self.queue.fill_replay(batch))
        try:
            await self.sink.resync(batch.put)
        except Refused as error:
            self.lost = True
            await self._refused(batch, error)
        except Exception as error:  # noqa: BLE001 (the outcome is unknown, so the keys are applied again)
            self.lost = True
            await self._unknown(batch, error)
            self._not_before = self._pace.clock() + self._pace.delay(self._failures - 1)
        except BaseException:
            self.lost = True
            self._back(batch)
            raise
        else:
            await self._confirmed(batch)

    async def _sweep(self, category: int) -> None:
        self.sweeping = True
        try:
            await self.sink.sweep(category)
        except Exception as error:  # noqa: BLE001 (the outcome is unknown, so the keys are applied again)
            self._failures += 1
            self._not_before = self._pace.clock() + self._pace.delay(self._failures - 1)
            self._errors.note(self._name, self, error)
        else:
            self.swept.add(category)
            self._works()
        finally:
            self.sweeping = False

    async def _confirmed(self, batch: Batch) -> None:
        self._works()
        await self._pace.drive(self.queue.confirm(batch, self._ledger))

    async def _unknown(self, batch: Batch, why: Exception) -> None:
        due = self._pace.clock() + self._pace.delay(self._failures)
        self._failures += 1
        if batch.retry:
            self._most = max(1, min(self._most, len(batch.cells)) // 2)
        self._errors.note(self._name, self, why)
        await self._pace.drive(self.queue.doubt(batch, due))

    async def _refused(self, batch: Batch, no: Refused) -> None:
        flight = {
            cell: (slot, value)
            for cell, slot, value in zip(batch.cells, batch.slots, batch.values, strict=True)
        }
        refs: dict[Cell, None] = {}
        for entry in no.entries:
            cell = self._ledger.cell_of(entry)
            if cell in flight:
                refs[cell] = None
        if not refs:
            await self._unknown(batch, no)
            return
        withdrawn = [cell for cell in refs if cell.doubt is None]
        self.queue.refuse(batch, set(refs), lambda tries: self._again(tries, 0), no)
        for cell in [cell for cell in refs if cell not in withdrawn]:
            slot, value = flight[cell]
            self._errors.note(f"refused {cell.table.kind.__name__}", cell.ref, no)
            if not slot.drop and slot.rank < REPORT:
                self._ledger.refuse(cell, value, no, self._again)

    def _again(self, tries: int, nth: int) -> float:
        """Owners of one refused entry try again one after the other: perhaps all but one of them fit."""
        return self._pace.clock() + self._pace.delay(tries) * (1 + nth % 16 / 16)

    def _back(self, batch: Batch) -> None:
        for _ in self.queue.doubt(batch, 0.0):
            pass

    def _works(self) -> None:
        self._failures = 0
        self._most = min(self._full, self._most * 2)
        self._errors.clear(self)
