"""Compares what jobs want with what sinks confirmed, and keeps jobs with refused entries whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.engine.core.clash import ClashWaiters
from antrea.engine.core.desired import change, desired, owners_of
from antrea.engine.core.job import DUE, GONE, NOTHING, OPEN, Job, add_waiter, each
from antrea.engine.core.order import Order, Slot
from antrea.engine.core.place import ORPHANED, TOUCHED, Cell, Table, discard_if_empty
from antrea.engine.core.reader import stop_reading
from antrea.engine.core.sink_queue import SinkQueue
from antrea.engine.core.time_slice import SLICE
from antrea.engine.entry import REPORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.engine.core.desired import SharedValue


class Ledger:
    """Jobs contribute to cells; touched cells are reviewed once all units ran; sink queues get the differences."""

    def __init__(self, facts: Any, sinks: Any, errors: Any, wake: Callable[[], None]) -> None:
        self.touched: list[Cell] = []
        """Entries whose contributions changed in the pass that runs."""
        self.touched_rows: list[Cell] = []
        """The same for derived rows."""
        self.order = Order(wake)
        self.held: dict[Job, None] = {}
        """Jobs that contribute their last applied version, because an entry of theirs was refused."""
        self.unrealized: dict[Job, Any] = {}
        """Jobs that were held and have not been applied as a whole since, with the refusal."""
        self.clashed: dict[Cell, ClashWaiters] = {}
        self.unwritten: dict[Cell, ClashWaiters] = {}
        """Derived rows that could not be written, and the jobs that wait for that."""
        self.busy: bool = False
        """Whether a pass runs: what it touches is reviewed at its end, not before."""
        self._facts = facts
        self._errors = errors
        self.tables: list[Table] = []
        """Tables of all entries that have a sink, or were yielded."""
        by_sink: dict[int, SinkQueue] = {}
        for kind, sink in sinks.items():
            queue = by_sink.get(id(sink))
            if queue is None:
                queue = by_sink[id(sink)] = SinkQueue(self.order, sink)
            self._assign(facts.table(kind), queue)

    def _assign(self, table: Table, queue: SinkQueue) -> None:
        table.queue = queue
        queue.tables.append(table)
        self.tables.append(table)

    @property
    def queues(self) -> list[SinkQueue]:
        return list({id(table.queue): table.queue for table in self.tables}.values())

    def queue(self, kind: type) -> SinkQueue:
        """Return the queue of an entry class; one without a sink takes part in single steps only."""
        table: Table = self._facts.table(kind)
        if table.queue is None:
            self._assign(table, SinkQueue(self.order, None))
        queue: SinkQueue = table.queue
        return queue

    def cell_of(self, entry: Any) -> Cell | None:
        """Return the cell of `entry`, if there is one."""
        cell = self._facts.table(type(entry)).rows.get(entry.key)
        return cell if isinstance(cell, Cell) else None

    # contributions

    def contribute(self, job: Job, entries: tuple[Any, ...]) -> None:
        """Replace the contribution of `job` by `entries`."""
        old = job.contributed
        if old is entries:
            return
        if not old:
            for i in range(0, len(entries), 2):
                self._change(job, entries[i], None, entries[i + 1])
        else:
            left = {old[i]: old[i + 1] for i in range(0, len(old), 2)}
            for i in range(0, len(entries), 2):
                cell, after = entries[i], entries[i + 1]
                before = left.pop(cell, None)
                if before is not after and before != after:
                    self._change(job, cell, before, after)
            for cell, before in left.items():
                self._change(job, cell, before, None)
                if cell.readers is not None and not cell.table.is_fact:
                    job.ensure_details().withdraw(cell)
        job.contributed = entries

    def _change(self, job: Job, cell: Cell, before: Any, after: Any) -> None:
        change(cell, job, before, after)
        flags = cell.flags
        if not flags & TOUCHED:
            cell.flags = flags | TOUCHED
            (self.touched_rows if cell.table.is_fact else self.touched).append(cell)
        if cell.table.is_fact:
            changers = cell.pending
            if changers is None:
                cell.pending = job
            elif type(changers) is list:
                changers.append(job)
            elif changers is not job:
                cell.pending = [changers, job]
            return
        entry = before if after is None else after
        if entry.rank < REPORT:
            self._wait(job, cell)

    def _wait(self, job: Job, cell: Cell) -> None:
        """Let `job` be settled no earlier than `cell` is applied."""
        if self.clashed and (waiters := self.clashed.get(cell)) is not None and job in waiters.jobs:
            del waiters.jobs[job]
            add_waiter(cell, job)
        elif cell.readers is None:
            cell.readers = job
            job.waiting += 1
        elif add_waiter(cell, job):
            job.waiting += 1

    def review(self, bulk: bool) -> Iterator[None]:
        """Compare every touched cell with what its sink confirmed; the sinks start when all cells are compared."""
        number = self.order.open()
        slots: dict[int, Slot] = {}
        while self.touched:
            todo, self.touched = self.touched, []
            for cell in todo:
                if cell.flags & TOUCHED:
                    cell.flags &= ~(TOUCHED | ORPHANED)
                    self._review(cell, number, bulk, slots)
                if SLICE.over():
                    yield
        self.order.close()

    def _review(self, cell: Cell, number: int, bulk: bool, slots: dict[int, Slot]) -> None:
        table = cell.table
        queue: Any = table.queue
        if queue is None:
            queue = self.queue(table.kind)
        agreed = True
        try:
            shared = cell.shared
            target = cell.wanted if shared is None else shared.get(cell)
        except Exception as error:  # noqa: BLE001 (a merge that fails leaves the applied value of its key)
            self._clash(cell, error)
            target, agreed = cell.value, False
        else:
            if shared is not None and (clash := shared.clash(cell)) is not None:
                self._clash(cell, clash)
            elif self._errors.standing:
                self._errors.clear(cell.ref)
                self._end_clash(cell)
        if target is None and table.forgets:
            queue.forget(cell)
        if cell.doubt is not None or cell.value != target:
            self._place(cell, target, number, bulk, slots)
            return
        queue.discard(cell)
        if queue.refusals:
            queue.refusals.pop(cell, None)
        if agreed:
            self.resolve(cell)

    def _clash(self, cell: Cell, why: Exception) -> None:
        self._errors.note(f"clash {cell.table.kind.__name__}", cell.ref, why)
        if cell not in self.clashed:
            self.clashed[cell] = ClashWaiters()

    def _end_clash(self, cell: Cell) -> None:
        waiters = self.clashed.pop(cell, None)
        if waiters is not None:
            for job in waiters.jobs:
                add_waiter(cell, job)

    def _place(self, cell: Cell, target: Any, number: int, bulk: bool, slots: dict[int, Slot]) -> None:
        if target is None:
            value = cell.value if cell.doubt is None else cell.doubt
            weight: int = -value.rank
            key = weight - 1  # ranks are at least 0: drops have keys below those of puts
        else:
            value = target
            key = weight = value.rank
        slot = slots.get(key)
        if slot is None:
            slot = slots[key] = Slot(bulk, number, target is None, weight)
        cell.table.queue.place(cell, value, slot)

    # what is applied

    def resolve(self, cell: Cell) -> None:
        """Continue the jobs that wait for the cell, whose wanted value is applied."""
        if self.clashed and cell in self.clashed:
            self._resolve_held(cell)
            return
        if self._errors.standing:
            self._errors.clear(cell.ref)
        if cell.table.is_fact:
            return
        waiters = cell.readers
        if waiters is None:
            pass
        elif type(waiters) is dict:
            cell.readers = None
            for job in waiters:
                self._stop_waiting(job, cell)
        else:
            cell.readers = None
            self._stop_waiting(waiters, cell)
        if cell.value is None:
            discard_if_empty(cell)

    def _resolve_held(self, cell: Cell) -> None:
        """Continue jobs whose claim counts, and jobs without a claim; the others wait until another claim counts."""
        shared = cell.shared
        if shared is None:
            return
        waiters = self.clashed[cell]
        if waiters.held is not shared.held:
            for job in waiters.jobs:
                add_waiter(cell, job)
            waiters.jobs = {}
            waiters.held = shared.held
        for job in each(cell.readers):
            stop_reading(job, cell)
            if shared.counts(_claim(job, cell)):
                self._stop_waiting(job, cell)
            else:
                waiters.jobs[job] = None

    def _stop_waiting(self, job: Job, cell: Cell) -> None:
        job.waiting -= 1
        details = job.details
        if details is not None and details.withdrawn:
            details.withdrawn.pop(cell, None)
        if not job.waiting:
            self.settle(job)

    def settle(self, job: Job) -> None:
        """If all of `job` is applied, keep this version, free the numbers that it released, and forget it if it is gone."""
        flags = job.flags
        if flags & (DUE | OPEN) or job.waiting:
            return
        details = job.details
        if details is not None:
            if details.refused is not None:
                return
            details.tries = 0
            for ref in details.released_ids:
                self._facts.ids.release(ref)
            details.released_ids = NOTHING
            if not (details.ids or details.acts or details.withdrawn):
                job.details = None
            if self.unrealized:
                self.unrealized.pop(job, None)
        job.last_applied = job.contributed
        if flags & GONE:
            self._forget(job)

    def _forget(self, job: Job) -> None:
        row, position = job.row, job.bound.position
        if row.jobs is job:
            row.jobs = None
        elif type(row.jobs) is list and row.jobs[position] is job:
            row.jobs[position] = None
            if not any(row.jobs):
                row.jobs = None
        discard_if_empty(row)

    # refusals

    def refuse(self, cell: Cell, value: Any, refused: Any, due: Callable[[int, int], float]) -> None:
        """Hold the owners of `cell` back, whole: those that changed it, or if none did (a replay), all of them.

        None is held back if `value` is no longer wanted: its owners are held for another entry of the same call.
        `due(tries, nth)` returns when the nth owner may try again after so many tries.
        """
        owners = list(each(cell.readers))
        if not owners and desired(cell) != value:
            return
        if not owners:
            owners = owners_of(cell)
            for job in owners:
                job.last_applied = ()
        for nth, job in enumerate(owners):
            if job.held is None:
                self._hold(job, due(job.ensure_details().tries, nth), refused)
        if not self.busy:
            for _ in self.review(bulk=True):
                pass

    def _hold(self, job: Job, due: float, refused: Any) -> None:
        details = job.ensure_details()
        details.refused, details.due = refused, due
        details.tries += 1
        self.held[job] = None
        self.unrealized[job] = refused
        self._errors.note("held", job.held_name, refused)
        job.last_applied = applied = self._in_cells(job.last_applied)
        changed = [*job.contributed[::2], *applied[::2]]
        self.contribute(job, applied)
        for cell in changed:
            if cell.flags & TOUCHED and not cell.table.is_fact:
                cell.table.queue.discard(cell)  # not before all is compared

    def _in_cells(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return `entries` in cells that exist: those that held nothing were discarded meanwhile."""
        contributed: list[Any] = []
        for i in range(0, len(entries), 2):
            cell: Cell = entries[i]
            contributed += (cell.table.cell(cell.key), entries[i + 1])
        return tuple(contributed)

    def release(self, job: Job) -> None:
        """Let `job` contribute what it wants, again or for the first time."""
        details = job.details
        if details is not None and details.refused is not None:
            details.refused = None
            del self.held[job]
            self._errors.clear(job.held_name)
            job.wanted = self._in_cells(job.wanted)
        self.contribute(job, job.wanted)

    def wait_for_write(self, cell: Cell, jobs: tuple[Job, ...]) -> None:
        """A derived row could not be written as `jobs` want it: they are not settled before it is."""
        waiters = self.unwritten.get(cell)
        if waiters is None:
            waiters = self.unwritten[cell] = ClashWaiters()
        waiters.held = None
        for job in jobs:
            if job not in waiters.jobs:
                waiters.jobs[job] = None
                job.waiting += 1

    def written(self, cell: Cell, changers: tuple[Job, ...]) -> None:
        """A derived row has been written: of its owners only those wait on whose claim does not count."""
        shared, waiters = cell.shared, self.unwritten.get(cell)
        if shared is not None and shared.clashes:
            self._wait_for_claim(cell, shared, changers)
        elif waiters is not None:
            del self.unwritten[cell]
            for job in waiters.jobs:
                self._stop_waiting(job, cell)

    def _wait_for_claim(self, cell: Cell, shared: SharedValue, changers: tuple[Job, ...]) -> None:
        waiters = self.unwritten.get(cell)
        if waiters is None:
            waiters = self.unwritten[cell] = ClashWaiters()
        candidates = dict.fromkeys(changers)
        if waiters.held is not shared.held:
            waiters.held = shared.held
            candidates = dict.fromkeys((*waiters.jobs, *changers))
        for job in candidates:
            if not shared.counts(_claim(job, cell)):
                if job not in waiters.jobs:
                    waiters.jobs[job] = None
                    job.waiting += 1
            elif job in waiters.jobs:
                del waiters.jobs[job]
                self._stop_waiting(job, cell)
        if not waiters.jobs:
            del self.unwritten[cell]

    def waits(self, job: Job, cell: Cell) -> bool:
        """Whether `job` waits for this entry to be applied."""
        waiters = self.clashed.get(cell)
        return job in each(cell.readers) or (waiters is not None and job in waiters.jobs)

    def is_waited_for(self, cell: Cell) -> bool:
        """Whether any job waits for this entry to be applied."""
        return cell.readers is not None or (cell in self.clashed and bool(self.clashed[cell].jobs))

    def waited_for(self, kind: type) -> list[Cell]:
        """Return cells of entries of `kind` that are not applied yet and that jobs wait for."""
        cells = dict.fromkeys([*self.touched, *self.clashed, *self.queue(kind).under_way()])
        return [cell for cell in cells if cell.table.kind is kind and self.is_waited_for(cell)]

    @property
    def empty(self) -> bool:
        """Whether no table holds anything."""
        return not (
            self.touched
            or self.touched_rows
            or self.held
            or self.unrealized
            or self.clashed
            or self.unwritten
            or any(queue.fresh or queue.retries or queue.refusals for queue in self.queues)
            or not self.order.empty
        )


def _claim(job: Job, cell: Cell) -> Any:
    """Return what `job` contributes to `cell`, or None."""
    entries = job.contributed
    for i in range(0, len(entries), 2):
        if entries[i] is cell:
            return entries[i + 1]
    return None
