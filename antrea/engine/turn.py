"""One pass: take in what was written, run the woken jobs in order, give their results to the ledger."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from antrea.engine.entry import Act, Ref, ref_of
from antrea.engine.facts import Reading
from antrea.engine.job import NOTHING, Job
from antrea.engine.ledger import each
from antrea.engine.unit import Graph, Unit
from antrea.engine.wanted import Cell
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set

    from antrea.engine.facts import Facts
    from antrea.engine.ids import IdRef
    from antrea.engine.ledger import Ledger
    from antrea.engine.store import Read
    from antrea.engine.trouble import Errors

Queue = dict[Unit, dict[Job, None]]
C = TypeVar("C", tuple[Any, ...], frozenset[Any])
STRETCH = 32
"""Entries that a job makes in one go; then the loop may breathe."""
SMALL = 16
"""Reads or numbers of a job that others may have, too."""
Cause = tuple[type[Act], Hashable, Hashable]
"""What makes two acts the same: class, key and cause."""


@lru_cache(1024)
def _first(value: Any) -> Any:
    """The first of equal values."""
    return value


def one_of(value: C) -> C:
    """One object for equal ones, if it is small: 10,000 members of a group read the same and use the same numbers."""
    return _first(value) if len(value) <= SMALL else value


class Turns:
    """Runs passes as generators: every `yield` is a place where the caller may let the loop breathe.

    Writes during a pass join the next one. Urgent jobs get a pass of their own, then bulk has its turn.
    """

    def __init__(self, facts: Facts, graph: Graph, ledger: Ledger, errors: Errors) -> None:
        self.failed: dict[Job, None] = {}
        """Jobs whose last run raised; they keep their old entries and run again in a retry."""
        self.acts: list[Act] = []
        """Acts that appeared in this pass."""
        self.covered = 0
        """How many of `facts.writes` have been seen by every job they concern."""
        self.synced: frozenset[type[Fact]] = frozenset()
        """Kinds whose first list has been seen by every job it concerns."""
        self.was_urgent = False
        """The last pass ran urgent jobs alone."""
        self._facts = facts
        self._graph = graph
        self._ledger = ledger
        self._errors = errors
        self._urgent: Queue = {}
        self._bulk: Queue = {}
        self._ran: list[Job] = []
        self._causes: dict[Cause, int] = {}
        """How many jobs state each cause."""
        self._causes_before: dict[Cause, tuple[Act, int]] = {}
        """The same for those that this pass touched, as it was before the pass."""
        facts.derived = dict.fromkeys(graph.makers, self._learn)
        facts.store.followed = graph.by.keys()

    @property
    def woken(self) -> bool:
        return bool(self._urgent or self._bulk)

    def run(self, *, bulk: bool, retry: Iterable[Job] = ()) -> Iterator[None]:
        """One pass: over the urgent jobs if there are any and `bulk` is false, else over the others and `retry`.

        `retry` are failed or held jobs whose time has come.
        """
        facts, ledger = self._facts, self._ledger
        facts.busy = ledger.busy = True
        seen = facts.writes
        yield from self._take_in()
        urgent = bool(self._urgent) and not bulk
        if urgent:
            queue, self._urgent = self._urgent, {}
        else:
            queue, self._bulk = self._bulk, {}
            self._retry(retry, queue)
        yield from self._run_all(queue)
        yield from ledger.review(late=not urgent)
        self._appeared()
        for job in self._ran:
            job.open = False
            ledger.settle(job)
            yield
        self._ran.clear()
        facts.busy = ledger.busy = False
        self.was_urgent = urgent
        if not self.woken:
            self.covered = seen
            self.synced = frozenset(facts.feeds.synced)

    @property
    def empty(self) -> bool:
        return not (self.failed or self.acts or self._urgent or self._bulk or self._ran or self._causes)

    def _take_in(self) -> Iterator[None]:
        yield from self._facts.drain()
        rejected, self._facts.rejected = self._facts.rejected, []
        touched, self._facts.touched = self._facts.touched, {}
        for read, urgent in touched.items():
            if self._errors.standing:
                self._errors.clear(read)
            for job in self._woken_by(read):
                self._enqueue(self._urgent if urgent else self._bulk, job)
                yield
        for kind, key, why in rejected:
            self._errors.note(f"index {kind.__name__}", (kind, key), why)

    def _woken_by(self, read: Read) -> Iterable[Job]:
        found = self._facts.readers(read)
        if len(read) == 2 and (units := self._graph.over.get(read[0])):
            return [*(self._ledger.job(unit, read[1]) for unit in units), *found]
        if len(read) == 4:
            return [*(self._ledger.job(unit, read[2]) for unit in self._graph.by[read[:2]]), *found]
        return found

    @staticmethod
    def _enqueue(queue: Queue, job: Job) -> None:
        job.due = True
        queue.setdefault(job.unit, {})[job] = None

    def _retry(self, jobs: Iterable[Job], queue: Queue) -> None:
        for job in jobs:
            if job in self.failed:
                self._enqueue(queue, job)
            elif job.held is not None:
                self._ledger.release(job)
                job.open = True
                self._ran.append(job)

    def _run_all(self, queue: Queue) -> Iterator[None]:
        level = self._graph.level
        while queue or self._ledger.touched_rows:
            if not queue:
                yield from self._derive(queue)
                continue
            lowest = min(level[unit] for unit in queue)
            for unit in [unit for unit in queue if level[unit] == lowest]:
                jobs = iter(queue.pop(unit))
                for job in jobs:
                    if job.due:  # else an urgent pass has run it meanwhile
                        yield from self._run(job)
                    if level[unit] != lowest:
                        # it read what others derive: all of them run after those, in their order
                        job.due = True
                        queue[unit] = {job: None, **dict.fromkeys(jobs), **queue.get(unit, {})}
            yield from self._derive(queue)
            yield from self._moved(queue)

    def _moved(self, queue: Queue) -> Iterator[None]:
        """Jobs whose order numbers a newcomer moved run again in this pass."""
        touched, self._facts.touched = self._facts.touched, {}
        for read in touched:
            for job in self._facts.readers(read):
                self._enqueue(queue, job)
                yield

    # one job

    def _run(self, job: Job) -> Iterator[None]:
        row = self._subject(job.unit, job.key)
        reading = Reading(job)
        made: dict[Ref, Any] = {}
        acts: dict[Cause, Act] = {}
        try:
            if row is not None:
                yield from self._collect(row, reading, made, acts)
        except Exception as why:
            self._fail(job, reading, why)
            return
        finally:
            self._facts.reading = None
        if job.reads:
            self._facts.unread(job, [read for read in job.reads if read not in reading.reads])
        job.reads = one_of((*reading.reads,))
        if reading.ids or job.ids:
            self._use(job, one_of(frozenset(reading.ids)))
        job.due, job.open, job.gone = False, True, row is None
        if job in self.failed:
            del self.failed[job]
            self._errors.clear(job.name)
        if made != job.wanted:
            job.wanted = made
            self._ledger.release(job)
        if acts or job.acts:
            self._state(job, acts)
        self._ran.append(job)
        yield

    def _subject(self, unit: Unit, key: str) -> Any:
        """What the unit is run over: a row, or a value that rows have; None if there is none any more."""
        store = self._facts.store
        if not unit.by:
            return store.get(unit.over, key)
        return key if store.by(unit.over, unit.by, key) else None

    def _collect(
        self, row: Any, reading: Reading, made: dict[Ref, Any], acts: dict[Cause, Act]
    ) -> Iterator[None]:
        unit = reading.job.unit
        twice: dict[Ref, Cell] = {}
        self._facts.reading = reading
        for count, item in enumerate(unit.entries(self._facts, row), start=1):
            if isinstance(item, Act):
                acts[type(item), item.key, item.cause] = item
            else:
                if isinstance(item, Fact) and type(item) not in unit.yields:
                    raise TypeError(f"unit {unit.name} does not declare that it yields {type(item).__name__}")
                self._make(item, made, twice)
            if not count % STRETCH:
                self._facts.reading = None
                yield
                self._facts.reading = reading
        for ref, cell in twice.items():
            made[ref] = cell.agreed(ref)

    @staticmethod
    def _make(item: Any, made: dict[Ref, Any], twice: dict[Ref, Cell]) -> None:
        """A job may itself want several parts under one key: they unite, or it fails."""
        ref = ref_of(item)
        hash(item)
        if ref not in made:
            made[ref] = item
        elif ref in twice or made[ref] != item:
            if ref not in twice:
                twice[ref] = Cell()
                twice[ref].add(made[ref])
            twice[ref].add(item)

    def _fail(self, job: Job, reading: Reading, why: Exception) -> None:
        """Keep what it had, and its reads and numbers with those of the broken run."""
        job.reads = (*reading.reads.union(job.reads),)
        self._use(job, {*job.ids, *reading.ids})
        self.failed[job] = None
        self._errors.note(f"unit {job.unit.name}", job.name, why)

    def _use(self, job: Job, ids: Set[IdRef]) -> None:
        if job.leaving is NOTHING:
            job.leaving = {}
        for ref in ids - job.ids:
            if ref in job.leaving:
                del job.leaving[ref]
            else:
                self._facts.ids.take(ref)
        for ref in job.ids - ids:
            job.leaving[ref] = None
        job.ids = ids

    def _state(self, job: Job, acts: dict[Cause, Act]) -> None:
        """`job` now states these causes."""
        for cause in acts.keys() ^ job.acts.keys():
            act = acts.get(cause) or job.acts[cause]
            count = self._causes.get(cause, 0)
            self._causes_before.setdefault(cause, (act, count))
            self._causes[cause] = count + (1 if cause in acts else -1)
        job.acts = acts

    def _appeared(self) -> None:
        """Note the acts whose cause nobody stated before this pass; it does not matter who stated it then and now."""
        for cause, (act, before) in self._causes_before.items():
            if not self._causes[cause]:
                del self._causes[cause]
            elif not before:
                self.acts.append(act)
        self._causes_before.clear()

    # derived rows

    def _derive(self, queue: Queue) -> Iterator[None]:
        """Write the derived rows that changed; who read them runs in this pass, and keeps their makers' numbers alive."""
        ledger = self._ledger
        while ledger.touched_rows:
            for ref in list(ledger.touched_rows):
                for job in self._write(ref, each(ledger.touched_rows.pop(ref))):
                    self._enqueue(queue, job)
                    yield
        ledger.touched_rows.clear()  # see Ledger.review

    def _write(self, ref: Ref, makers: Sequence[Job]) -> Iterator[Job]:
        """Bring the derived row under `ref`, which `makers` changed, up to date; yields the jobs to run for it."""
        ledger, (kind, key) = self._ledger, ref
        try:
            touched = self._facts.store.write(kind, str(key), ledger.wanted.get(ref))
        except Exception as why:
            self._errors.note(f"derived {kind.__name__}", ref, why)
            for job in makers:
                ledger.wait(job, ref)
            return
        waiting = each(ledger.waiters.get(ref)) if ledger.waiters else ()
        left = [number for job in (*makers, *waiting) for number in job.leaving]
        for read in touched:
            for job in self._woken_by(read):
                if left:
                    self._inherit(job, left)
                yield job
        ledger.resolve(ref)

    def _inherit(self, job: Job, left: list[IdRef]) -> None:
        for ref in left:
            if ref not in job.leaving and ref not in job.ids:
                if job.leaving is NOTHING:
                    job.leaving = {}
                job.leaving[ref] = None
                self._facts.ids.take(ref)

    def _learn(self, job: Job, kind: type[Fact]) -> None:
        self._graph.learn(job.unit, kind)
