"""Random sequences: incremental == from scratch, also after any exception; each property has a mutant that breaks it."""

from __future__ import annotations

import asyncio
import random
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
from engine_world import (
    MORE,
    QUICK,
    Flow,
    Member,
    Notebook,
    Pod,
    Route,
    Snat,
    Status,
    Switch,
    faulty,
    from_scratch,
    random_write,
    until,
)

from antrea.engine import Engine, Facts, Pace, Unit
from antrea.engine.core.evaluator import Evaluator
from antrea.engine.core.job import DUE
from antrea.engine.core.ledger import Ledger
from antrea.engine.core.place import APPEARED
from antrea.engine.core.reader import Reader
from antrea.engine.core.sink_queue import SinkQueue
from antrea.engine.core.time_slice import SLICE
from antrea.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from antrea.engine import Plan, Sink
    from antrea.engine.core.job import Job
    from antrea.engine.core.place import Place, Table
    from antrea.engine.core.sink_queue import Batch
    from antrea.facts.fact import Fact

    Mutation = Callable[[SinkQueue, Ledger], None]

pytestmark = pytest.mark.untraced

SEEDS = range(40)


class Boom(Exception):
    pass


class Chance:
    """Raises Boom now and then while armed."""

    def __init__(self, rnd: random.Random, share: float) -> None:
        self.armed = True
        self._rnd = rnd
        self._share = share

    def __call__(self) -> None:
        if self.armed and self._rnd.random() < self._share:
            raise Boom


def follow(state: dict[Any, Any], plan: Plan) -> None:
    """Do what the plan says, as a sink would."""
    for entry in plan.put:
        state[type(entry), entry.key] = entry
    for entry in plan.drop:
        del state[type(entry), entry.key]


def without_statuses(state: dict[Any, Any]) -> dict[Any, Any]:
    """A status that is withdrawn stays outside, so only the others can be compared there."""
    return {ref: entry for ref, entry in state.items() if ref[0] is not Status}


# incremental == from scratch


def agree(seed: int, facts: Facts) -> None:
    rnd, state = random.Random(seed), dict[Any, Any]()
    engine = Engine(facts, MORE)
    for _ in range(60):
        random_write(rnd, facts)
        if rnd.random() < 0.5:
            follow(state, engine.plan())
    follow(state, engine.plan())
    assert engine.standing() == engine.applied() == from_scratch(facts)
    assert without_statuses(state) == without_statuses(engine.standing())
    assert engine.errors.counts == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_incremental_and_from_scratch_agree(seed: int) -> None:
    agree(seed, Facts(Notebook()))


class PartialReader(Reader):
    """Records no reads through an index."""

    def note(self, place: Place, table: Table) -> None:
        if getattr(place, "table", table) is table:
            super().note(place, table)


class UnrecordedIndex(Facts):
    """Mutant: reads through an index are not recorded."""

    def __init__(self, journal: Notebook) -> None:
        super().__init__(journal)
        self.reader = PartialReader()


class UnnoticedDrop(Facts):
    """Mutant: a job whose row is dropped does not hear of it."""

    def drop(self, kind: type[Fact], key: str, *, urgent: bool = False) -> None:
        super().drop(kind, key, urgent=urgent)
        for _ in self.drain():
            pass
        row = self.table(kind).rows.get(key)
        if row is not None and row in self.touched:
            self.touched.remove(row)
            row.flags = 0


class UnnoticedValue(Facts):
    """Mutant: nobody hears that the first row with a value has come, or that the last has gone."""

    def drain(self) -> Iterator[None]:
        yield from super().drain()
        for place in self.touched:
            place.flags &= ~APPEARED


@pytest.mark.parametrize("mutant", [UnrecordedIndex, UnnoticedDrop, UnnoticedValue])
def test_agreement_can_fail(mutant: Callable[[Notebook], Facts]) -> None:
    def all_agree() -> None:
        for seed in SEEDS:
            agree(seed, mutant(Notebook()))

    with pytest.raises(AssertionError):
        all_agree()


# any exception in a unit or the journal, then one clean pass


class FaultyEvaluator(Evaluator):
    """Mutant: a failed job is taken for a job that wants nothing."""

    def _fail(self, job: Job, why: Exception) -> None:
        super()._fail(job, why)
        job.flags &= ~DUE
        job.wanted = ()
        del self.failed[job]
        self._ledger.release(job)


class ForgetfulEvaluator(Evaluator):
    """Mutant: a failed job is not run again."""

    def _fail(self, job: Job, why: Exception) -> None:
        super()._fail(job, why)
        del self.failed[job]


def recover(seed: int, evaluator: type[Evaluator]) -> None:
    rnd, state, notebook = random.Random(seed), dict[Any, Any](), Notebook()
    chance = Chance(rnd, 0.05)
    notebook.fault = chance
    facts = Facts(notebook)
    engine = Engine(facts, faulty(MORE, chance))
    if evaluator is not Evaluator:
        engine._evaluator.__class__ = evaluator
    failures = 0
    for _ in range(60):
        random_write(rnd, facts)
        if rnd.random() < 0.5:
            follow(state, engine.plan())
            failures += bool(engine.errors.standing)
    assert failures
    chance.armed = False
    follow(state, engine.plan())
    assert engine.errors.standing == {}
    assert engine.standing() == engine.applied() == from_scratch(facts)
    assert without_statuses(state) == without_statuses(engine.standing())


@pytest.mark.parametrize("seed", SEEDS)
def test_after_any_exception_one_clean_pass_is_as_good_as_from_scratch(seed: int) -> None:
    recover(seed, Evaluator)


@pytest.mark.parametrize("mutant", [FaultyEvaluator, ForgetfulEvaluator])
def test_recovery_can_fail(mutant: type[Evaluator]) -> None:
    def all_recover() -> None:
        for seed in SEEDS:
            recover(seed, mutant)

    with pytest.raises(AssertionError):
        all_recover()


# any answer of any sink


def keep(queue: SinkQueue, ledger: Ledger) -> None:
    """No mutant."""


def trust(queue: SinkQueue, ledger: Ledger) -> None:
    """Mutant: an unknown outcome is taken for a success."""
    queue.doubt = lambda batch, due: queue.confirm(batch, ledger)  # type: ignore[method-assign]


def sulk(queue: SinkQueue, ledger: Ledger) -> None:
    """Mutant: after a refusal the rest of the batch is not sent again."""

    def refuse(batch: Batch, cells: Any, due: Callable[[int], float], why: Refused) -> None:
        SinkQueue.refuse(queue, batch, cells, due, why)
        for cell in batch.cells:
            if cell not in cells:
                queue.discard(cell)

    queue.refuse = refuse  # type: ignore[method-assign]


async def survive(seed: int, mutate: Mutation = keep, patience: float = 20.0, pace: Pace = QUICK) -> None:
    rnd = random.Random(seed)
    facts = Facts(Notebook())
    flows, host, api = Switch(), Switch(), Switch()
    chance = Chance(rnd, 0.03)

    def on_entry(entry: Any) -> None:
        chance()
        if chance.armed and rnd.random() < 0.03:
            raise Refused([entry], "no")

    for switch in (flows, host, api):
        switch.on_call, switch.on_entry = chance, on_entry
    sinks: dict[type, Sink] = {Flow: flows, Snat: host, Route: host, Status: api}
    engine = Engine(facts, faulty(MORE, chance), sinks, sweeps={0: (Pod,)}, pace=pace)
    for worker in engine._sinks.workers:
        mutate(worker.queue, engine._ledger)
    task = asyncio.create_task(engine.run())
    try:
        for _ in range(80):
            random_write(rnd, facts)
            if rnd.random() < 0.3:
                await asyncio.sleep(rnd.choice([0, 0, 0.001]))
            if rnd.random() < 0.02:
                lost = rnd.choice([flows, host])
                lost.state.clear()
                engine.resync(lost)
        chance.armed = False
        expected: dict[Hashable, Any] = {}

        def healed() -> bool:
            nonlocal expected
            if engine.errors.standing:
                return False
            expected = without_statuses(from_scratch(facts))
            return without_statuses(flows.state | host.state) == expected

        await engine.quiet()
        await until(healed, patience)
        await engine.quiet()
        assert without_statuses(engine.applied()) == without_statuses(engine.standing()) == expected
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("seed", range(25))
async def test_after_any_answer_of_any_sink_the_outside_ends_as_wanted(seed: int) -> None:
    await survive(seed)


class UnevenPace(Pace, frozen=True):
    """Slices of any length, as on a machine that others use as well."""

    async def drive(self, steps: Iterable[object]) -> None:
        SLICE.begin(perf_counter() + random.choice(LENGTHS))
        for _ in steps:
            await asyncio.sleep(0)
            SLICE.begin(perf_counter() + random.choice(LENGTHS))


LENGTHS = (0.0, 0.00002, 0.0001, 1.0)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "pace", [Pace(first=0.001, most=0.004, slice=0.0), UnevenPace(first=0.001, most=0.004)]
)
async def test_the_outside_ends_as_wanted_wherever_runs_pause(seed: int, pace: Pace) -> None:
    await survive(seed, pace=pace)


@pytest.mark.parametrize("mutant", [trust, sulk])
async def test_survival_can_fail(mutant: Mutation) -> None:
    async def all_survive() -> None:
        for seed in range(10):
            await survive(seed, mutant, 0.5)

    with pytest.raises((AssertionError, TimeoutError)):
        await all_survive()


# owners stand whole or not at all


async def hold_together(seed: int, ledger: type[Ledger] = Ledger, patience: float = 20.0) -> None:
    """Pods whose flow is refused for ever never show half: route, flow and SNAT stand together or none does."""
    rnd = random.Random(seed)
    facts = Facts(Notebook())
    flows, host = Switch(), Switch()

    def chain(facts: Facts, pod: Pod) -> Iterator[Any]:
        n = int(pod.name[1:])
        yield from (Route(pod.name), Flow(pod.name, (f"output:{pod.port}",)), Snat(n, str(pod.port)))

    def on_entry(entry: Flow) -> None:
        if entry.actions == ("output:3",):
            raise Refused([entry], "3 is not taken")

    flows.on_entry = on_entry
    sinks: dict[type, Sink] = {Flow: flows, Snat: host, Route: host}
    engine = Engine(facts, [Unit(Pod, chain)], sinks, pace=QUICK)
    if ledger is not Ledger:
        engine._ledger.__class__ = ledger
    task = asyncio.create_task(engine.run())
    try:
        for _ in range(40):
            facts.put(Pod(f"p{rnd.randrange(5)}", rnd.randrange(4)))
            await asyncio.sleep(rnd.choice([0, 0, 0.001]))
        await engine.quiet()

        def whole() -> bool:
            state = flows.state | host.state
            for n in range(5):
                parts = [(Route, f"p{n}") in state, (Flow, f"p{n}") in state, (Snat, n) in state]
                if any(parts) != all(parts):
                    return False
                if all(parts) and state[Flow, f"p{n}"].actions != (f"output:{state[Snat, n].ip}",):
                    return False
            return True

        await until(whole, patience)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class HalfLedger(Ledger):
    """Mutant: a known no concerns the refused entry only."""

    def refuse(self, ref: Any, value: Any, refused: Refused, due: Callable[[int, int], float]) -> None:
        pass


@pytest.mark.parametrize("seed", range(10))
async def test_owners_of_refused_entries_stand_whole_or_not_at_all(seed: int) -> None:
    await hold_together(seed)


async def test_wholeness_can_fail() -> None:
    async def all_hold_together() -> None:
        for seed in range(10):
            await hold_together(seed, HalfLedger, 0.5)

    with pytest.raises(TimeoutError):
        await all_hold_together()


# clashes


def claim(facts: Facts, pod: Pod) -> Iterator[Flow]:
    """Every Pod wants a value of its own under the keys of its labels: `port` tells whose it is."""
    for label in pod.labels:
        yield Flow(label, (f"output:{pod.port}",))


def claim_row(facts: Facts, pod: Pod) -> Iterator[Member]:
    """The same, of derived rows."""
    for label in pod.labels:
        yield Member("n", label, pod.port, 0)


def claim_of_row(facts: Facts, member: Member) -> Iterator[Flow]:
    yield Flow(member.pod, (f"output:{member.port}",))


CLAIMS = {
    "entries": (Unit(Pod, claim),),
    "rows": (Unit(Pod, claim_row, (Member,)), Unit(Member, claim_of_row)),
}


@pytest.mark.parametrize("units", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize("seed", range(20))
def test_a_later_claim_never_takes_a_key_from_its_holder(seed: int, units: tuple[Unit, ...]) -> None:
    rnd, pods, claims = random.Random(seed), dict[int, Pod](), dict[str, dict[int, None]]()
    engine = Engine(Facts(), units)
    for step in range(200):
        number = rnd.randrange(6)
        if rnd.random() < 0.3:
            pods.pop(number, None)
            engine.facts.drop(Pod, f"p{number}")
        else:
            labels = tuple(label for label in "xyz" if rnd.random() < 0.5)
            pods[number] = Pod(f"p{number}", 1000 * number + step, labels)
            engine.facts.put(pods[number])
        for label in "xyz":
            owners = claims.setdefault(label, {})
            if number in pods and label in pods[number].labels:
                owners[number] = None
            else:
                owners.pop(number, None)
        engine.plan()
        assert {ref[1]: flow.actions for ref, flow in engine.applied().items()} == {
            label: (f"output:{pods[next(iter(owners))].port}",) for label, owners in claims.items() if owners
        }
        clashing = sum(len(owners) > 1 for owners in claims.values())
        assert len(engine.errors.standing) == clashing
    for number in range(6):
        engine.facts.drop(Pod, f"p{number}")
    engine.plan()
    assert (engine.empty, engine.standing()) == (True, {})


def test_whoever_comes_back_in_another_order_finds_what_is_applied_in_its_own_hands() -> None:
    """As when a feed lists anew: what stands outside tells whose claim is the older one."""
    for order in (("a", "b"), ("b", "a")):
        engine = Engine(Facts(), CLAIMS["entries"])
        cell = engine.facts.table(Flow).cell("x")
        cell.value = Flow("x", ("output:1",))
        pods = {"a": Pod("a", 1, ("x",)), "b": Pod("b", 2, ("x",))}
        for name in order:
            engine.facts.put(pods[name])
        assert engine.plan().put == []
        engine.facts.put(Pod("a", 3, ("x",)))
        assert engine.plan().put == [Flow("x", ("output:3",))]


def test_parts_that_united_stay_when_another_value_is_claimed_later() -> None:
    def parts(facts: Facts, pod: Pod) -> Iterator[Flow]:
        yield Flow("x", (f"conj({pod.port})",) if pod.port else ("drop",))

    engine = Engine(Facts(), [Unit(Pod, parts)])
    for name, port in (("a", 1), ("b", 2)):
        engine.facts.put(Pod(name, port))
    assert engine.plan().put == [Flow("x", ("conj(1)", "conj(2)"))]
    engine.facts.put(Pod("c", 0))
    assert engine.plan().put == []
    engine.facts.put(Pod("b", 3))
    assert engine.plan().put == [Flow("x", ("conj(1)", "conj(3)"))]
    engine.facts.drop(Pod, "c")
    assert (engine.plan().put, engine.errors.standing) == ([], {})
