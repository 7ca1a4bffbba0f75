"""Wanted against applied, key by key: which errands a change makes, and which jobs stand as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.engine.entry import REPORT, Ref
from antrea.engine.job import NOTHING, Hold, Job
from antrea.engine.lane import Lane
from antrea.engine.order import Order, Slot
from antrea.engine.wanted import Clash, Wanted
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from antrea.engine.entry import Sink
    from antrea.engine.facts import Facts
    from antrea.engine.trouble import Errors
    from antrea.engine.unit import Unit
    from antrea.errors import Refused


def add(table: dict[Ref, Job | list[Job]], ref: Ref, job: Job) -> None:
    """One more for `ref`."""
    first = table.setdefault(ref, job)
    if isinstance(first, list):
        first.append(job)
    elif first is not job:
        table[ref] = [first, job]


def each(found: Job | list[Job] | None) -> Sequence[Job]:
    """All that stand in a place of such a table."""
    if found is None:
        return ()
    return found if isinstance(found, list) else (found,)


class Ledger:
    """Jobs contribute to `wanted`; `touched` refs are reviewed once all units ran; lanes get the difference."""

    def __init__(
        self, facts: Facts, sinks: Mapping[type, Sink], errors: Errors, wake: Callable[[], None]
    ) -> None:
        self.wanted = Wanted()
        self.jobs: dict[Unit, dict[str, Job]] = {}
        self.touched: dict[Ref, None] = {}
        """Entries whose contributions changed in the pass that runs."""
        self.touched_rows: dict[Ref, Job | list[Job]] = {}
        """The same for derived rows, with who changed them: most often one job, which stands for itself."""
        self.order = Order(wake)
        self.waiters: dict[Ref, Job | list[Job]] = {}
        """Jobs whose contribution to a ref does not stand yet: most often one, which stands for itself."""
        self.held: dict[Job, None] = {}
        self.lacking: dict[Job, Refused] = {}
        """Jobs that were held back and have not stood as a whole since, also while they try again."""
        self.busy = False
        """A pass is running: what it touched is reviewed at its end, not before."""
        self._facts = facts
        self._errors = errors
        self._of_sink: dict[int, Lane] = {}
        self._of_type: dict[type, Lane] = {}
        for kind, sink in sinks.items():
            lane = self._of_sink.setdefault(id(sink), Lane(self.order, self.touched, sink))
            self._of_type[kind] = lane

    @property
    def lanes(self) -> list[Lane]:
        return list({id(lane): lane for lane in self._of_type.values()}.values())

    def lane(self, kind: type) -> Lane:
        """The lane of an entry class; one without a sink takes part in single steps only."""
        if (lane := self._of_type.get(kind)) is None:
            lane = self._of_type[kind] = Lane(self.order, self.touched, None)
        return lane

    def job(self, unit: Unit, key: str) -> Job:
        """The job of `unit` over row `key`, made if need be."""
        jobs = self.jobs.setdefault(unit, {})
        if (job := jobs.get(key)) is None:
            job = jobs[key] = Job(unit, key)
        return job

    # contributions

    def give(self, job: Job, entries: dict[Ref, Any]) -> None:
        """From now on `job` contributes `entries` instead of what it did."""
        old = job.given
        if old is entries:
            return
        change, touched = self.wanted.change, self.touched
        for ref in old.keys() | entries.keys() if old else entries:
            before, after = old.get(ref), entries.get(ref)
            if before == after:
                continue
            change(ref, before, after)
            if issubclass(ref[0], Fact):
                add(self.touched_rows, ref, job)
                continue
            touched[ref] = None
            entry: Any = before if after is None else after
            if entry.rank < REPORT:
                self.wait(job, ref)
        job.given = entries or NOTHING

    def wait(self, job: Job, ref: Ref) -> None:
        """`job` is not whole before `ref` stands."""
        if ref not in job.waiting:
            if job.waiting is NOTHING:
                job.waiting = {}
            job.waiting[ref] = None
            add(self.waiters, ref, job)

    def review(self, late: bool) -> Iterator[None]:
        """Compare what is wanted under every touched ref with what stands; the lanes start when all is compared."""
        turn, slots = self.order.open(), dict[tuple[bool, int], Slot]()
        while self.touched:
            for ref in list(self.touched):
                del self.touched[ref]
                self._review(ref, turn, late, slots)
                yield
        self.touched.clear()  # a dict that was large once costs its size to iterate until it is cleared
        self.order.close()

    def _review(self, ref: Ref, turn: int, late: bool, slots: dict[tuple[bool, int], Slot]) -> None:
        lane = self.lane(ref[0])
        try:
            target = self.wanted.get(ref)
        except Exception as why:
            self._errors.note(f"clash {ref[0].__name__}", ref, why)
            target, agreed = lane.confirmed.get(ref), False
        else:
            if self._errors.standing:
                self._errors.clear(ref)
            agreed = True
        if target is None and getattr(ref[0], "forgets", False):
            lane.forget(ref)
        if not lane.stands(ref, target):
            value = lane.last(ref) if target is None else target
            drop = target is None
            weight = -value.rank if drop else value.rank
            if (slot := slots.get((drop, weight))) is None:
                slot = slots[drop, weight] = Slot(late, turn, drop, weight)
            lane.place(ref, value, slot)
        else:
            lane.discard(ref)
            lane.noes.pop(ref, None)
            if agreed:
                self.resolve(ref)

    # what stands

    def land(self, refs: Iterable[Ref]) -> Iterator[None]:
        """The sink confirmed `refs`: where nothing newer is under way, that is what their jobs wait for."""
        for ref in refs:
            if ref not in self.touched and ref not in self.lane(ref[0]).errands:
                self.resolve(ref)
            yield

    def resolve(self, ref: Ref) -> None:
        """What is wanted under `ref` stands."""
        if self._errors.standing:
            self._errors.clear(ref)
        for job in each(self.waiters.pop(ref, None)):
            del job.waiting[ref]
            if not job.waiting:
                job.waiting = NOTHING
                self.settle(job)

    def settle(self, job: Job) -> None:
        """If everything of `job` stands: this is its whole version, the numbers it left are free, a gone job is forgotten."""
        if not job.whole:
            return
        job.good, job.tries = job.given, 0
        self.lacking.pop(job, None)
        for ref in job.leaving:
            self._facts.ids.give_back(ref)
        job.leaving = NOTHING
        if job.gone:
            self._forget(job)

    def _forget(self, job: Job) -> None:
        jobs = self.jobs.get(job.unit, {})
        if jobs.get(job.key) is job:
            del jobs[job.key]
            if not jobs:
                del self.jobs[job.unit]

    # known noes

    def refuse(self, ref: Ref, value: Any, refused: Refused, due: Callable[[int, int], float]) -> None:
        """Hold back the owners of `ref`, whole: those that changed it, or if none did (a replay), all of them.

        Nobody, if `value` is no longer wanted: who changed it is held back already for another entry of the same call.
        `due(tries, nth)` says when the nth owner may try again for the so-manieth time.
        """
        owners = [*each(self.waiters.get(ref))]
        if not owners and not self._wants(ref, value):
            return
        if not owners:
            owners = [job for jobs in self.jobs.values() for job in jobs.values() if ref in job.given]
            for job in owners:
                job.good = NOTHING
        for nth, job in enumerate(owners):
            if job.held is None:
                self._hold(job, Hold(due(job.tries, nth), refused))
        if not self.busy:
            for _ in self.review(late=True):
                pass

    def _wants(self, ref: Ref, value: Any) -> bool:
        try:
            return bool(self.wanted.get(ref) == value)
        except Clash:
            return False

    def _hold(self, job: Job, hold: Hold) -> None:
        job.held = hold
        job.tries += 1
        self.held[job] = None
        self.lacking[job] = hold.refused
        self._errors.note("held", job.held_name, hold.refused)
        changed = [*job.given, *job.good]
        self.give(job, job.good)
        for ref in changed:
            if ref in self.touched:
                self.lane(ref[0]).discard(ref)  # not before all is compared

    def release(self, job: Job) -> None:
        """Let `job` try what it wants, again or for the first time."""
        if job.held is not None:
            job.held = None
            del self.held[job]
            self._errors.clear(job.held_name)
        self.give(job, job.wanted)

    @property
    def empty(self) -> bool:
        """No table holds anything."""
        return not (
            self.wanted.refs()
            or self.jobs
            or self.touched
            or self.touched_rows
            or self.waiters
            or self.held
            or self.lacking
            or any(
                lane.confirmed or lane.doubtful or lane.errands or lane.noes
                for lane in self._of_type.values()
            )
            or not self.order.empty
        )
