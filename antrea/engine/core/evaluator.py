"""Runs passes: takes facts in, runs the jobs that they wake, derives rows, and has the ledger compare the entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.engine.core.causes import Causes
from antrea.engine.core.desired import SharedValue
from antrea.engine.core.job import DUE, GONE, IN_BULK, IN_URGENT, OPEN, BoundUnit, Job, each
from antrea.engine.core.job_queue import JobQueue, wake
from antrea.engine.core.numbers import inherit_ids, use_ids
from antrea.engine.core.place import APPEARED, ORPHANED, TOUCHED, URGENT, Cell, Row, Table, discard_if_empty
from antrea.engine.core.reader import Absent
from antrea.engine.core.store import write
from antrea.engine.core.time_slice import SLICE, clock
from antrea.engine.core.workload import Workload
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine.core.ledger import Ledger
    from antrea.engine.core.reader import Reader

CHUNK = 32
"""Entries that a job makes before it looks at the clock."""


class Evaluator:
    """Passes are generators: they yield where the caller may let the event loop run.

    Writes during a pass join the next one. Urgent jobs get a pass of their own; after it bulk has its turn.
    """

    def __init__(self, facts: Any, graph: Any, ledger: Ledger, errors: Any) -> None:
        self.failed: dict[Job, None] = {}
        """Jobs whose last run raised; they keep their old entries and run again in a retry."""
        self.causes = Causes()
        self.covered: int = 0
        """How many of `facts.writes` every job that they concern has seen."""
        self.synced: frozenset[Any] = frozenset()
        """Kinds whose first list every job that it concerns has seen."""
        self.was_urgent: bool = False
        """Whether the last pass ran urgent jobs alone."""
        self._facts = facts
        self._graph = graph
        self._ledger: Ledger = ledger
        self._errors = errors
        self._urgent = JobQueue(IN_URGENT)
        self._bulk = JobQueue(IN_BULK)
        self._running = JobQueue(0)
        """Jobs that the pass still has to run."""
        self._under_way: tuple[BoundUnit, int] | None = None
        """The unit that is run, and how many of its jobs are left, as of the last pause."""
        self._ran: list[Job] = []
        self._made: dict[Cell, Any] = {}
        """Values that the running job has yielded so far."""
        self._acts: dict[Any, Any] = {}
        self._twice: dict[Cell, SharedValue] = {}
        """Cells for which it yielded several values."""
        self._items: Any = None
        self._changed: list[Any] = []
        self._reader: Reader = facts.reader
        self._reader.learn = self._learn
        self._bound: dict[Any, BoundUnit] = {}
        for kind in graph.makers:
            facts.table(kind).derived = True
        for unit in graph.units:
            table: Table = facts.table(unit.over)
            if unit.by:
                table = table.index_by_name[unit.by]
            bound = self._bound[unit] = BoundUnit(unit, table)
            table.units.append(bound)
        self._set_levels()

    def _set_levels(self) -> None:
        for unit, bound in self._bound.items():
            bound.level = self._graph.level[unit]

    def _learn(self, job: Job, table: Table) -> None:
        self._graph.learn(job.bound.unit, table.kind)
        job.bound.derived_reads.add(table)
        self._set_levels()

    @property
    def woken(self) -> bool:
        """Whether jobs have to run."""
        return bool(self._urgent.jobs or self._bulk.jobs)

    def workloads(self) -> dict[str, Workload]:
        """Return how long jobs took and how many wait, by what their units are measured as; between steps of a pass."""
        workloads: dict[str, Workload] = {}
        left: dict[BoundUnit, int] = {}
        for queue in (self._urgent, self._bulk, self._running):
            for bound, jobs in queue.jobs.items():
                left[bound] = left.get(bound, 0) + len(jobs)
        if self._under_way is not None:
            bound, count = self._under_way
            left[bound] = left.get(bound, 0) + count
        for unit, bound in self._bound.items():
            for name in unit.measured_as:
                total = workloads.setdefault(name, Workload())
                if bound.workload is not None:
                    total.add(bound.workload)
                total.waiting += left.get(bound, 0)
        return workloads

    def run(self, *, bulk: bool, retry: Iterable[Job] = ()) -> Iterator[None]:
        """Run one pass: over the urgent jobs if there are any and `bulk` is false, else over the others and `retry`.

        `retry` are failed or held jobs that are due.
        """
        facts, ledger = self._facts, self._ledger
        facts.busy = ledger.busy = True
        seen = facts.writes
        yield from self._take_in()
        urgent = bool(self._urgent.jobs) and not bulk
        if urgent:
            queue, self._urgent = self._urgent, JobQueue(IN_URGENT)
        else:
            queue, self._bulk = self._bulk, JobQueue(IN_BULK)
            self._retry(retry, queue)
        yield from self._run_all(queue)
        yield from ledger.review(bulk=not urgent)
        self.causes.close()
        for job in self._ran:
            job.flags &= ~OPEN
            ledger.settle(job)
            if SLICE.over():
                yield
        self._ran.clear()
        facts.busy = ledger.busy = False
        self.was_urgent = urgent
        if not self.woken:
            self.covered = seen
            self.synced = frozenset(facts.feeds.synced)

    @property
    def empty(self) -> bool:
        """Whether no table holds anything."""
        return not (self.failed or self.woken or self._ran) and self.causes.empty

    def _take_in(self) -> Iterator[None]:
        facts = self._facts
        yield from facts.drain()
        rejected, facts.rejected = facts.rejected, []
        touched, facts.touched = facts.touched, []
        urgent, bulk, standing = self._urgent, self._bulk, self._errors.standing
        for place in touched:
            if standing and isinstance(place, Row):
                self._errors.clear((place.table.kind, place.key))
            wake(place, urgent if place.flags & URGENT else bulk)
            place.flags &= ~(TOUCHED | URGENT | APPEARED)
            if isinstance(place, Row) and place.value is None:
                discard_if_empty(place)
            if SLICE.over():
                yield
        for kind, key, why in rejected:
            self._errors.note(f"index {kind.__name__}", (kind, key), why)

    def _retry(self, jobs: Iterable[Job], queue: JobQueue) -> None:
        for job in jobs:
            if job in self.failed:
                queue.add(job)
            elif job.held is not None:
                self._ledger.release(job)
                job.flags |= OPEN
                self._ran.append(job)

    def _run_all(self, queue: JobQueue) -> Iterator[None]:
        ledger, self._running = self._ledger, queue
        while queue.jobs or ledger.touched_rows:
            if queue.jobs:
                lowest = min([bound.level for bound in queue.jobs])
                for bound in [bound for bound in queue.jobs if bound.level == lowest]:
                    yield from self._run_unit(bound, lowest, queue)
                self._under_way = None
            yield from self._derive(queue)
            if self._facts.touched:
                self._wake_moved(queue)

    def _run_unit(self, bound: BoundUnit, level: int, queue: JobQueue) -> Iterator[None]:
        jobs = queue.jobs.pop(bound)
        workload, began = bound.workload, clock()
        for n, job in enumerate(jobs):
            job.flags &= ~queue.bit
            if job.flags & DUE:  # else an urgent pass has run it meanwhile
                done = self._start(job)
                while not done:
                    self._under_way, paused = (bound, len(jobs) - n), clock()
                    yield
                    began += clock() - paused
                    self._keep_cells()
                    done = self._proceed(job)
                now = clock()
                if workload is not None:
                    workload.note(now - began)
                if now >= SLICE.end:
                    self._under_way = (bound, len(jobs) - n - 1)
                    yield
                    now = clock()
                began = now
            if bound.level != level:
                # it read a derived kind for the first time: all jobs of the unit run after those that make it
                job.flags |= DUE | queue.bit
                queue.jobs[bound] = [*jobs[n:], *queue.jobs.get(bound, ())]
                return

    def _wake_moved(self, queue: JobQueue) -> None:
        """Run the jobs whose order numbers a new key moved, in the same pass."""
        touched, self._facts.touched = self._facts.touched, []
        for place in touched:
            wake(place, queue)
            place.flags &= ~(TOUCHED | URGENT | APPEARED)

    # one job

    def _start(self, job: Job) -> bool:
        """Run `job`; return False if it has not come to its end and the event loop has to run first."""
        bound, row = job.bound, job.row
        self._reader.begin(job)
        self._made = {}
        subject = row.value
        if subject is None:
            return self._finish(job, True)
        try:
            self._items = iter(bound.entries(self._facts, row.key if bound.by else subject))
        except Absent:
            return self._finish(job, False)
        except Exception as error:  # noqa: BLE001 (a unit fails with its own entries alone)
            self._fail(job, error)
            return True
        return self._proceed(job)

    def _proceed(self, job: Job) -> bool:
        self._reader.job = job
        try:
            if not self._collect(job.bound, self._made):
                self._reader.job = None
                return False
            for cell, values in self._twice.items():
                if (clash := values.clash(cell)) is not None:
                    raise clash
                self._made[cell] = values.get(cell)
            self._twice.clear()
        except Absent:
            self._withdraw()
        except Exception as error:  # noqa: BLE001 (a unit fails with its own entries alone)
            self._fail(job, error)
            return True
        self._items = None
        return self._finish(job, False)

    def _keep_cells(self) -> None:
        """Put the cells of the running job back that a sink's answer discarded while the event loop ran."""
        made, twice = self._made, self._twice
        for cell in [cell for cell in made if cell.table.rows.setdefault(cell.key, cell) is not cell]:
            standing = cell.table.cell(cell.key)
            made[standing] = made.pop(cell)
            if cell in twice:
                twice[standing] = twice.pop(cell)

    def _withdraw(self) -> None:
        """The running job wants nothing of what it has yielded so far."""
        made, self._made = self._made, {}
        self._acts = {}
        self._twice.clear()
        for cell in made:
            discard_if_empty(cell)

    def _collect(self, bound: BoundUnit, made: dict[Cell, Any]) -> bool:
        """Collect what the unit yields; return False if the time slice ends before the unit does."""
        routes, count = bound.routes, 0
        for item in self._items:
            kind = type(item)
            table = routes.get(kind)
            if table is None:
                table = self._route(bound, kind)
            if table.is_act:
                self._acts[kind, item.key, item.cause] = item
            else:
                key = item.key
                if table.is_fact and type(key) is not str:
                    key = str(key)
                cell: Any = table.rows.get(key)
                if cell is None:
                    cell = table.rows[key] = Cell(table, key)
                    made[cell] = item
                elif cell in made:
                    self._add_twice(cell, item)
                else:
                    if (cell.shared is not None or cell.wanted is not None) and not table.parts_only:
                        hash(item)  # raises here, where the unit is to blame, if the item cannot be hashed
                    made[cell] = item
            count += 1
            if count >= CHUNK:
                count = 0
                if clock() >= SLICE.end:
                    return False
        return True

    def _route(self, bound: BoundUnit, kind: type) -> Table:
        if issubclass(kind, Fact) and kind not in bound.unit.yields:
            raise TypeError(f"unit {bound.unit.name} does not declare that it yields {kind.__name__}")
        table: Table = self._facts.table(kind)
        bound.routes[kind] = table
        return table

    def _add_twice(self, cell: Cell, item: Any) -> None:
        """A job may yield several parts under one key: they unite, or the job fails."""
        values = self._twice.get(cell)
        if values is None:
            if self._made[cell] == item:
                return
            values = self._twice[cell] = SharedValue(self._made[cell])
        values.change(values.total, None, item)

    def _finish(self, job: Job, gone: bool) -> bool:
        reader, made = self._reader, self._made
        reader.end(job, False)
        if reader.ids is not None or job.details is not None:
            use_ids(job, frozenset(reader.ids or ()), self._facts.ids)
        if gone:
            job.flags = (job.flags | OPEN | GONE) & ~DUE
        else:
            job.flags = (job.flags | OPEN) & ~(DUE | GONE)
        if self.failed and job in self.failed:
            del self.failed[job]
            self._errors.clear(job.name)
        entries = _flat(made)
        if entries != job.wanted:
            job.wanted = entries
            self._ledger.release(job)
        if self._acts or (job.details is not None and job.details.acts):
            self.causes.state(job, self._acts)
            self._acts = {}
        self._ran.append(job)
        return True

    def _fail(self, job: Job, why: Exception) -> None:
        """Keep what `job` had, and its reads and numbers together with those of the failed run."""
        reader = self._reader
        self._items, self._acts = None, {}
        self._twice.clear()
        reader.end(job, True)
        if reader.ids is not None or job.details is not None:
            ids = frozenset(reader.ids or ())
            use_ids(job, ids.union(job.details.ids) if job.details is not None else ids, self._facts.ids)
        self.failed[job] = None
        self._errors.note(f"unit {job.bound.unit.name}", job.name, why)
        for cell in self._made:
            discard_if_empty(cell)

    # derived rows

    def _derive(self, queue: JobQueue) -> Iterator[None]:
        """Write the derived rows that changed; their readers run in this pass and keep their makers' numbers in use."""
        ledger = self._ledger
        while ledger.touched_rows:
            todo, ledger.touched_rows = ledger.touched_rows, []
            for cell in todo:
                self._write(cell, queue)
                if SLICE.over():
                    yield

    def _write(self, cell: Cell, queue: JobQueue) -> None:
        changers, cell.pending = cell.pending, None
        cell.flags &= ~(TOUCHED | ORPHANED)
        changed, ledger = self._changed, self._ledger
        try:
            shared = cell.shared
            write(cell, cell.wanted if shared is None else shared.get(cell), changed)
        except Exception as error:  # noqa: BLE001 (a unit fails with its own entries alone)
            changed.clear()
            self._errors.note(f"derived {cell.table.kind.__name__}", cell.ref, error)
            ledger.wait_for_write(cell, each(changers))
            return
        if changed:
            self._spread(cell, changers, queue)
        clash = None if shared is None else shared.clash(cell)
        if clash is not None:
            self._errors.note(f"clash {cell.table.kind.__name__}", cell.ref, clash)
        elif self._errors.standing:
            self._errors.clear(cell.ref)
        if clash is not None or ledger.unwritten:
            ledger.written(cell, each(changers))
        if cell.value is None:
            discard_if_empty(cell)

    def _spread(self, cell: Cell, changers: Any, queue: JobQueue) -> None:
        """Wake whatever reads the places that the write of `cell` changed."""
        for observer in cell.table.observers:
            observer(cell.table.kind, cell.key)
        released = self._released_ids(cell, changers)
        for place in self._changed:
            wake(place, queue)
            if released:
                inherit_ids(place, released, self._facts.ids)
            place.flags &= ~APPEARED
            if place.readers is None and isinstance(place, Row):
                discard_if_empty(place)
        self._changed.clear()

    def _released_ids(self, cell: Cell, changers: Any) -> list[Any]:
        """Return the numbers that the makers of `cell` no longer use."""
        if type(changers) is not list and not self._ledger.unwritten:  # as nearly always
            return [] if changers.details is None else [*changers.details.released_ids]
        waiters = self._ledger.unwritten.get(cell)
        jobs = each(changers) if waiters is None else (*each(changers), *waiters.jobs)
        return [ref for job in jobs if job.details is not None for ref in job.details.released_ids]


def _flat(made: dict[Cell, Any]) -> tuple[Any, ...]:
    """Return cell, value, cell, value ..."""
    if len(made) == 1:
        return next(iter(made.items()))
    flat: list[Any] = []
    for cell, value in made.items():
        flat.append(cell)
        flat.append(value)
    return tuple(flat)
