"""The reconciler of agent and controller: facts in, differences out, until everything wanted is applied."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, TypeVar

from antrea.engine.act_runner import ActRunner
from antrea.engine.collection import CollectionPause
from antrea.engine.core.desired import desired
from antrea.engine.core.evaluator import Evaluator
from antrea.engine.core.job import each
from antrea.engine.core.ledger import Ledger
from antrea.engine.core.place import Cell, Row
from antrea.engine.core.sink_queue import Batch
from antrea.engine.core.store import values_of
from antrea.engine.core.time_slice import SLICE
from antrea.engine.entry import REPORT, Plan, Ref
from antrea.engine.error_log import Errors
from antrea.engine.pace import Pace, wait
from antrea.engine.sink_worker import SinkGroup, SinkWorker
from antrea.engine.unit import Graph, Unit
from antrea.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from antrea.engine.core.facts import Facts
    from antrea.engine.core.job import Job
    from antrea.engine.core.order import Slot
    from antrea.engine.core.sink_queue import SinkQueue
    from antrea.engine.core.workload import Workload
    from antrea.engine.entry import Act, Sink
    from antrea.facts.fact import Fact

E = TypeVar("E")
NO_SINKS: Mapping[type, Sink] = {}
NO_ACTS: Mapping[type[Act], Callable[[Any], Awaitable[None]]] = {}
NO_SWEEPS: Mapping[int, tuple[type[Fact], ...]] = {}


class Engine:
    """Step it with `plan` in tests, `run` it in programs; never both."""

    def __init__(
        self,
        facts: Facts,
        units: Iterable[Unit],
        sinks: Mapping[type, Sink] = NO_SINKS,
        acts: Mapping[type[Act], Callable[[Any], Awaitable[None]]] = NO_ACTS,
        sweeps: Mapping[int, tuple[type[Fact], ...]] = NO_SWEEPS,
        *,
        pace: Pace = Pace(),  # noqa: B008 (frozen)
    ) -> None:
        """`sweeps`: category -> kinds that must have synced before it is swept. Raises ValueError for units in a circle."""
        self.facts = facts
        self.errors = Errors()
        self._pace = pace
        self._graph = Graph(units)
        self._ledger = Ledger(facts, sinks, self.errors, self._wake_sinks)
        self._evaluator = Evaluator(facts, self._graph, self._ledger, self.errors)
        self._sinks = SinkGroup(sweeps)
        self._sinks.workers = [
            SinkWorker(queue, queue.sink, self._ledger, self.errors, pace)
            for queue in self._ledger.queues
            if queue.sink is not None
        ]
        self._act_runners = {
            kind: ActRunner(do, self._ledger.order, self.errors) for kind, do in acts.items()
        }
        self._awake = asyncio.Event()
        self._pulse = asyncio.Event()
        self._failures = 0
        self._retry_at = 0.0
        self._frozen = False
        self._collection = CollectionPause()
        facts.listeners.append(self._awake.set)

    # single step

    def plan(self) -> Plan:
        """Run every woken job, and those that failed before, to the end; what comes out counts as applied.

        Puts come by rank, drops in reverse.
        """
        SLICE.begin(float("inf"))
        retry = [*self._evaluator.failed, *self._ledger.held]
        while self._pending or retry:
            for _ in self._evaluator.run(bulk=bool(retry), retry=retry):
                pass
            retry = []
        changes: list[tuple[Slot, Any]] = []
        while sum(self._offer_batch(queue, changes) for queue in self._ledger.queues):
            pass
        changes.sort(key=lambda change: (change[0].drop, change[0].weight))
        return Plan(
            [value for slot, value in changes if not slot.drop],
            [value for slot, value in changes if slot.drop],
            self._evaluator.causes.take_acts(),
        )

    def _offer_batch(self, queue: SinkQueue, changes: list[tuple[Slot, Any]]) -> bool:
        batch = Batch()
        for _ in queue.fill(batch, float("inf"), self._pace.batch, self._pace.batch):
            pass
        changes += zip(batch.slots, batch.values, strict=True)
        for _ in queue.confirm(batch, self._ledger):
            pass
        return bool(batch.cells)

    # for ever

    async def run(self) -> None:
        """Keep the outside as wanted until cancelled. A bug in the engine itself travels; a unit's, sink's or act's does not."""
        async with asyncio.TaskGroup() as tasks:
            for worker in self._sinks.workers:
                tasks.create_task(worker.run(self._sinks, self._moved))
            for runner in self._act_runners.values():
                tasks.create_task(runner.run())
            while True:
                await self._pass()
                self._moved()
                await self._sleep()

    async def _pass(self) -> None:
        evaluator, now = self._evaluator, self._pace.clock()
        retry = [job for job in self._ledger.held if job.details is not None and job.details.due <= now]
        if evaluator.failed and now >= self._retry_at:
            retry += evaluator.failed
            self._retry_at = now + self._pace.delay(self._failures)
            self._failures += 1
        await self._pace.drive(
            self._collection.paused(evaluator.run(bulk=evaluator.was_urgent or bool(retry), retry=retry))
        )
        if not evaluator.failed:
            self._failures = 0
        elif not self._failures:
            self._retry_at, self._failures = self._pace.clock() + self._pace.delay(0), 1
        for act in evaluator.causes.take_acts():
            self._do(act)
        self._sinks.synced = evaluator.synced
        if not self._sinks.started and not evaluator.woken:
            self._sinks.start()
        self._sinks.wake()

    async def _sleep(self) -> None:
        self._awake.clear()
        now = self._pace.clock()
        due = [job.details.due - now for job in self._ledger.held if job.details is not None]
        if self._evaluator.failed:
            due.append(self._retry_at - now)
        await (asyncio.sleep(0) if self._pending else wait(self._awake, min(due, default=None)))

    def _do(self, act: Act) -> None:
        if (runner := self._act_runners.get(type(act))) is None:
            self.errors.once(f"act {type(act).__name__}", LookupError("nothing does such acts"))
        else:
            runner.add(act)

    def _moved(self) -> None:
        """A pass is over or a sink has answered: wake whatever waits for that."""
        self._pulse.set()
        self._pulse = asyncio.Event()
        if self._pending or self._ledger.held:
            self._awake.set()
        if self._sinks.complete and not self._frozen:
            self._caught_up()

    def _caught_up(self) -> None:
        """Every sink has replayed and swept: nothing of an earlier process is left outside."""
        self._frozen = True
        gc.freeze()  # what stands now stays: later collections need not look at it
        if self._sinks.sweeps:
            self.facts.ids.swept()

    def _wake_sinks(self) -> None:
        self._sinks.wake()
        for runner in self._act_runners.values():
            runner.awake.set()

    @property
    def _pending(self) -> bool:
        return self.facts.waiting or self._evaluator.woken or bool(self._ledger.touched_rows)

    # questions

    async def settled(self, kind: type[Fact], key: str) -> None:
        """Return once every write made so far was seen and all that the jobs over that row want is applied.

        Derived rows count with the jobs over them; entries that only report do not.
        Raises Refused if a sink refused one of these entries or it clashes, Unavailable if one of these units fails.
        """
        mark = self.facts.writes
        while True:
            pulse = self._pulse
            if self._evaluator.covered >= mark:
                jobs = [job for job in self._jobs_below(kind, key) if not job.is_settled]
                for job in jobs:
                    self._raise_problem(job)
                if not jobs:
                    return
            await pulse.wait()

    async def stand(self, kind: type) -> None:
        """Return once every write made so far was seen and what it changed about entries of `kind` is applied, refusals aside.

        What is written meanwhile is not waited for.
        """
        mark, left = self.facts.writes, None
        while True:
            pulse = self._pulse
            if left is None and self._evaluator.covered >= mark:
                left = self._ledger.waited_for(kind)
            if left is not None:
                queue = self._ledger.queue(kind)
                left = [cell for cell in left if self._ledger.is_waited_for(cell) and not queue.refusal(cell)]
                if not left:
                    return
            await pulse.wait()

    async def quiet(self, *, reports: bool = True, sweeps: bool = True) -> None:
        """Return once every write made so far is applied and nothing is under way, refusals and failing units aside.

        With `reports` False it does not wait for sinks that only report: nothing of the network depends on them. With `sweeps`
        False it does not wait for the removal of what an earlier process left.
        """
        while True:
            pulse = self._pulse
            counted = [c for c in self._sinks.workers if reports or c.rank < REPORT]
            busy = not self._sinks.started or any(
                (c.busy and (sweeps or not c.sweeping)) or c.lost or not c.queue.quiet for c in counted
            )
            acting = any(runner.busy or runner.todo for runner in self._act_runners.values())
            if not (busy or acting or self._pending or self._evaluator.covered < self.facts.writes):
                return
            await wait(pulse, self._pace.first)

    def unrealized(self) -> dict[tuple[str, str], str]:
        """Return unit and key of rows whose entries were refused, with the reason, until they are applied as a whole."""
        return {job.name: refused.why for job, refused in self._ledger.unrealized.items()}

    def workloads(self) -> dict[str, Workload]:
        """Return how long jobs took and how many wait, by each of what their units are `measured_as`."""
        return self._evaluator.workloads()

    def jobs(self) -> Iterator[Job]:
        """All jobs."""
        yield from self.facts.jobs()

    async def moved(self) -> None:
        """Return when the next pass is over, or the next sink has answered."""
        await self._pulse.wait()

    def standing(self) -> dict[Ref, Any]:
        """Return everything wanted now, by class and key; where jobs clash, the value that counts."""
        out: dict[Ref, Any] = {}
        for cell in self._cells():
            if (value := desired(cell)) is not None:
                out[cell.ref] = value
        return out

    def standing_of(self, kind: type[E], keep: Callable[[Any], bool]) -> Iterator[E]:
        """Yield what is wanted now of one class of entries, by keys that pass `keep`."""
        table = self.facts.tables.get(kind)
        for key, cell in () if table is None else table.rows.items():
            if keep(key) and isinstance(cell, Cell) and (value := desired(cell)) is not None:
                yield value

    def applied(self) -> dict[Ref, Any]:
        """Return everything that sinks confirmed, by class and key."""
        return {cell.ref: cell.value for cell in self._cells() if cell.value is not None}

    def _cells(self) -> Iterator[Cell]:
        for table in self.facts.tables.values():
            if not table.is_fact:
                for cell in table.rows.values():
                    if isinstance(cell, Cell):
                        yield cell

    def unsynced(self) -> list[str]:
        """Kinds whose feeds have been unsynced for `Pace.patience` seconds since this was first asked."""
        kinds = {kind for kinds in self._sinks.sweeps.values() for kind in kinds}
        late = self.facts.feeds.overdue(kinds, self._pace.clock(), self._pace.patience)
        return [kind.__name__ for kind in late]

    def resync(self, sink: Sink) -> None:
        """Replay everything to `sink`, then sweep: its daemon restarted, or a connection was made anew."""
        for worker in self._sinks.workers:
            if worker.sink is sink:
                worker.replay()

    @property
    def empty(self) -> bool:
        """Whether no table of the engine or its facts holds anything."""
        return self.facts.empty and self._ledger.empty and self._evaluator.empty

    def _jobs_below(self, kind: type[Fact], key: str) -> list[Job]:
        jobs: dict[Job, None] = {}
        todo: list[tuple[type[Fact], Any]] = [(kind, key)]
        while todo:
            over, row = todo.pop()
            for job in self._jobs(over, row):
                if job not in jobs:
                    jobs[job] = None
                    todo += [cell.ref for cell in job.contributed[::2] if cell.table.is_fact]
        return list(jobs)

    def _jobs(self, kind: type[Fact], key: Any) -> Iterator[Job]:
        """The jobs over this row, and those over its values in an index."""
        table = self.facts.table(kind)
        row = table.rows.get(key)
        places: list[Row] = [] if row is None else [row]
        if row is not None and row.value is not None:
            for index in table.indexes:
                places += [
                    bucket for value in values_of(index, row.value) if (bucket := index.rows.get(value))
                ]
        for place in places:
            yield from [job for job in each(place.jobs) if job is not None]

    def _raise_problem(self, job: Job) -> None:
        if job.held is not None:
            raise job.held
        if job in self._evaluator.failed:
            raise Unavailable(f"unit {job.unit.name} for {job.key} ({self.errors.standing.get(job.name)})")
        left = () if job.details is None else job.details.withdrawn
        unwritten = [cell for cell, waiters in self._ledger.unwritten.items() if job in waiters.jobs]
        for cell in (*job.contributed[::2], *left, *unwritten):
            if cell.table.is_fact:
                if cell not in unwritten:
                    continue
            elif not self._ledger.waits(job, cell):
                continue
            if (
                refused := None if cell.table.is_fact else self._ledger.queue(cell.table.kind).refusal(cell)
            ) is not None:
                raise refused
            if (why := self.errors.standing.get(cell.ref)) is not None:
                raise Refused(
                    [dict(zip(job.wanted[::2], job.wanted[1::2], strict=True)).get(cell, cell.ref)], why
                )
