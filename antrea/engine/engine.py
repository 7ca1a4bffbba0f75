"""THE reconciler of agent and controller: facts in, differences out, until what is wanted stands."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

from antrea.engine.act import Doer
from antrea.engine.dispatch import Courier, Round
from antrea.engine.entry import REPORT, Plan, Ref
from antrea.engine.lane import Batch
from antrea.engine.ledger import Ledger
from antrea.engine.pace import Pace, calmly, wait
from antrea.engine.store import places
from antrea.engine.trouble import Errors
from antrea.engine.turn import Turns
from antrea.engine.unit import Graph, Unit
from antrea.engine.wanted import Clash
from antrea.errors import Refused, Unavailable
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from antrea.engine.entry import Act, Sink
    from antrea.engine.facts import Facts
    from antrea.engine.job import Job
    from antrea.engine.lane import Lane
    from antrea.engine.order import Slot

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
        self._ledger = Ledger(facts, sinks, self.errors, self._wake_lanes)
        self._turns = Turns(facts, self._graph, self._ledger, self.errors)
        self._round = Round(sweeps)
        self._round.couriers = [
            Courier(lane, lane.sink, self._ledger, self.errors, pace)
            for lane in self._ledger.lanes
            if lane.sink is not None
        ]
        self._doers = {kind: Doer(do, self._ledger.order, self.errors) for kind, do in acts.items()}
        self._awake = asyncio.Event()
        self._pulse = asyncio.Event()
        self._failures = 0
        self._retry_at = 0.0
        self._frozen = False
        facts.listeners.append(self._awake.set)

    # single step

    def plan(self) -> Plan:
        """Run every woken job, and those that failed before, to the end; what comes out counts as applied.

        Puts come by rank, drops in reverse.
        """
        retry = [*self._turns.failed, *self._ledger.held]
        while self._pending or retry:
            for _ in self._turns.run(bulk=bool(retry), retry=retry):
                pass
            retry = []
        errands: list[tuple[Slot, Any]] = []
        while sum(self._take(lane, errands) for lane in self._ledger.lanes):
            pass
        errands.sort(key=lambda errand: (errand[0].drop, errand[0].weight))
        acts, self._turns.acts = self._turns.acts, []
        return Plan(
            [value for slot, value in errands if not slot.drop],
            [value for slot, value in errands if slot.drop],
            acts,
        )

    def _take(self, lane: Lane, errands: list[tuple[Slot, Any]]) -> bool:
        batch = Batch()
        for _ in lane.fill(batch, float("inf"), self._pace.batch, self._pace.batch):
            pass
        errands += batch.flight.values()
        for _ in self._ledger.land(lane.confirm(batch)):
            pass
        return bool(batch.flight)

    # for ever

    async def run(self) -> None:
        """Keep the outside as wanted until cancelled. A bug in the engine itself travels; a unit's, sink's or act's does not."""
        async with asyncio.TaskGroup() as tasks:
            for courier in self._round.couriers:
                tasks.create_task(courier.run(self._round, self._answered))
            for doer in self._doers.values():
                tasks.create_task(doer.run())
            while True:
                await self._pass()
                self._answered()
                await self._sleep()

    async def _pass(self) -> None:
        turns, now = self._turns, self._pace.clock()
        retry = [job for job in self._ledger.held if job.held is not None and job.held.due <= now]
        if turns.failed and now >= self._retry_at:
            retry += turns.failed
            self._retry_at = now + self._pace.delay(self._failures)
            self._failures += 1
        await self._pace.drive(calmly(turns.run(bulk=turns.was_urgent or bool(retry), retry=retry)))
        if not turns.failed:
            self._failures = 0
        elif not self._failures:
            self._retry_at, self._failures = self._pace.clock() + self._pace.delay(0), 1
        acts, turns.acts = turns.acts, []
        for act in acts:
            self._do(act)
        self._round.synced = turns.synced
        if not self._round.started and not turns.woken:
            self._round.start()
        self._round.wake()

    async def _sleep(self) -> None:
        self._awake.clear()
        now = self._pace.clock()
        due = [job.held.due - now for job in self._ledger.held if job.held is not None]
        if self._turns.failed:
            due.append(self._retry_at - now)
        await (asyncio.sleep(0) if self._pending else wait(self._awake, min(due, default=None)))

    def _do(self, act: Act) -> None:
        if (doer := self._doers.get(type(act))) is None:
            self.errors.once(f"act {type(act).__name__}", LookupError("nothing does such acts"))
        else:
            doer.add(act)

    def _answered(self) -> None:
        """Something moved: let those who wait for it look again."""
        self._pulse.set()
        self._pulse = asyncio.Event()
        if self._pending or self._ledger.held:
            self._awake.set()
        if self._round.complete and not self._frozen:
            self._caught_up()

    def _caught_up(self) -> None:
        """Nothing of an earlier process is left outside."""
        self._frozen = True
        gc.freeze()  # what stands now stays: later collections need not look at it
        if self._round.sweeps:
            self.facts.ids.swept()

    def _wake_lanes(self) -> None:
        self._round.wake()
        for doer in self._doers.values():
            doer.awake.set()

    @property
    def _pending(self) -> bool:
        return self.facts.waiting or self._turns.woken or bool(self._ledger.touched_rows)

    # questions

    async def settled(self, kind: type[Fact], key: str) -> None:
        """Return once every write made so far was seen and all that the jobs over that row want is applied.

        Derived rows count with the jobs over them; entries that only report do not.
        Raises Refused if a sink said no to one of these entries or it clashes, Unavailable if one of these units fails.
        """
        mark = self.facts.writes
        while True:
            pulse = self._pulse
            if self._turns.covered >= mark:
                jobs = [job for job in self._family(kind, key) if not job.whole]
                for job in jobs:
                    self._complain(job)
                if not jobs:
                    return
            await pulse.wait()

    async def stand(self, kind: type) -> None:
        """Return once every write made so far was seen and what it changed about entries of `kind` is applied, known noes aside.

        What is written meanwhile is not waited for.
        """
        mark, left = self.facts.writes, None
        while True:
            pulse = self._pulse
            if left is None and self._turns.covered >= mark:
                left = [ref for ref in self._ledger.waiters if ref[0] is kind]
            if left is not None:
                lane = self._ledger.lane(kind)
                left = [ref for ref in left if ref in self._ledger.waiters and not lane.refusal(ref)]
                if not left:
                    return
            await pulse.wait()

    async def quiet(self, *, reports: bool = True) -> None:
        """Return once every write made so far is applied and nothing is under way, known noes and failing units aside.

        With `reports` False it does not wait for sinks that only report: nothing of the network depends on them.
        """
        while True:
            pulse = self._pulse
            counted = [c for c in self._round.couriers if reports or c.rank < REPORT]
            busy = not self._round.started or any(c.busy or c.lost or not c.lane.quiet for c in counted)
            acting = any(doer.busy or doer.todo for doer in self._doers.values())
            if not (busy or acting or self._pending or self._turns.covered < self.facts.writes):
                return
            await wait(pulse, self._pace.first)

    def lacking(self) -> dict[tuple[str, str], str]:
        """Units and keys of rows whose entries were refused, and why, until they stand as a whole."""
        return {job.name: refused.why for job, refused in self._ledger.lacking.items()}

    async def moved(self) -> None:
        """Return when the next pass is over, or the next sink has answered."""
        await self._pulse.wait()

    def standing(self) -> dict[Ref, Any]:
        """Everything wanted now, by class and key; where jobs clash, what stands instead."""
        out: dict[Ref, Any] = {}
        for ref in self._ledger.wanted.refs():
            if not issubclass(ref[0], Fact):
                try:
                    out[ref] = self._ledger.wanted.get(ref)
                except Clash:
                    if (applied := self._ledger.lane(ref[0]).confirmed.get(ref)) is not None:
                        out[ref] = applied
        return out

    def applied(self) -> dict[Ref, Any]:
        """Everything that sinks confirmed, by class and key."""
        return {ref: entry for lane in self._ledger.lanes for ref, entry in lane.confirmed.items()}

    def unsynced(self) -> list[str]:
        """Kinds whose feeds have been unsynced for `Pace.patience` seconds since this was first asked."""
        kinds = {kind for kinds in self._round.sweeps.values() for kind in kinds}
        late = self.facts.feeds.overdue(kinds, self._pace.clock(), self._pace.patience)
        return [kind.__name__ for kind in late]

    def resync(self, sink: Sink) -> None:
        """`sink` lost what it had (its daemon restarted, a connection was made anew): replay everything, then sweep."""
        for courier in self._round.couriers:
            if courier.sink is sink:
                courier.replay()

    @property
    def empty(self) -> bool:
        """No table of the engine or its facts holds anything."""
        return self.facts.empty and self._ledger.empty and self._turns.empty

    def _family(self, kind: type[Fact], key: str) -> list[Job]:
        found: dict[Job, None] = {}
        todo: list[tuple[type[Fact], Any]] = [(kind, key)]
        while todo:
            over, row = todo.pop()
            for job in self._jobs(over, row):
                if job not in found:
                    found[job] = None
                    todo += [ref for ref in job.given if issubclass(ref[0], Fact)]
        return list(found)

    def _jobs(self, kind: type[Fact], key: Any) -> Iterator[Job]:
        """Those over this row, and those over the values that it has in an index."""
        units = [(unit, key) for unit in self._graph.over.get(kind, ())]
        for _, index, value in places(kind, self.facts.store.get(kind, key)):
            units += [(unit, value) for unit in self._graph.by.get((kind, index), ())]
        for unit, name in units:
            if (job := self._ledger.jobs.get(unit, {}).get(name)) is not None:
                yield job

    def _complain(self, job: Job) -> None:
        if job.held is not None:
            raise job.held.refused
        if job in self._turns.failed:
            raise Unavailable(f"unit {job.unit.name} for {job.key} ({self.errors.standing.get(job.name)})")
        for ref in job.waiting:
            lane = self._ledger.lane(ref[0])
            if (refused := lane.refusal(ref)) is not None:
                raise refused
            if (why := self.errors.standing.get(ref)) is not None:
                raise Refused([job.wanted.get(ref, ref)], why)
