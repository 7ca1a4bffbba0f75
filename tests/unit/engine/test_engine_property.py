"""Random sequences: incremental == from scratch, also after any exception; each property has a mutant that breaks it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from engine_world import (
    MORE,
    QUICK,
    Flow,
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

from antrea.engine import Engine, Facts, Unit
from antrea.engine.lane import Lane
from antrea.engine.ledger import Ledger
from antrea.engine.turn import Turns
from antrea.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from antrea.engine import Plan, Sink
    from antrea.engine.facts import Reading
    from antrea.engine.job import Job
    from antrea.engine.lane import Batch
    from antrea.engine.store import Read
    from antrea.facts.fact import Fact

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


class Deaf(Facts):
    """Mutant: reads through an index are not recorded."""

    def _note(self, reading: Reading, read: Read) -> None:
        if len(read) != 3:
            super()._note(reading, read)


class Hasty(Facts):
    """Mutant: a job whose row is dropped does not hear of it."""

    def drop(self, kind: type[Fact], key: str, *, urgent: bool = False) -> None:
        super().drop(kind, key, urgent=urgent)
        self.touched.pop((kind, key), None)
        for _ in self.drain():
            self.touched.pop((kind, key), None)


class Solitary(Facts):
    """Mutant: nobody hears that the first row with a value has come, or that the last has gone."""

    def drain(self) -> Iterator[None]:
        yield from super().drain()
        for read in [read for read in self.touched if len(read) == 4]:
            del self.touched[read]


@pytest.mark.parametrize("mutant", [Deaf, Hasty, Solitary])
def test_agreement_can_fail(mutant: Callable[[Notebook], Facts]) -> None:
    def all_agree() -> None:
        for seed in SEEDS:
            agree(seed, mutant(Notebook()))

    with pytest.raises(AssertionError):
        all_agree()


# any exception in a unit or the journal, then one clean pass


class FaultyTurns(Turns):
    """Mutant: a failed job is taken for a job that wants nothing."""

    def _fail(self, job: Job, reading: Reading, why: Exception) -> None:
        super()._fail(job, reading, why)
        job.due, job.wanted = False, {}
        del self.failed[job]
        self._ledger.release(job)


class ForgetfulTurns(Turns):
    """Mutant: a failed job is not run again."""

    def _fail(self, job: Job, reading: Reading, why: Exception) -> None:
        super()._fail(job, reading, why)
        del self.failed[job]


def recover(seed: int, turns: type[Turns]) -> None:
    rnd, state, notebook = random.Random(seed), dict[Any, Any](), Notebook()
    chance = Chance(rnd, 0.05)
    notebook.fault = chance
    facts = Facts(notebook)
    engine = Engine(facts, faulty(MORE, chance))
    engine._turns = turns(facts, engine._graph, engine._ledger, engine.errors)
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
    recover(seed, Turns)


@pytest.mark.parametrize("mutant", [FaultyTurns, ForgetfulTurns])
def test_recovery_can_fail(mutant: type[Turns]) -> None:
    def all_recover() -> None:
        for seed in SEEDS:
            recover(seed, mutant)

    with pytest.raises(AssertionError):
        all_recover()


# any answer of any sink


class TrustingLane(Lane):
    """Mutant: an unknown outcome is taken for a success."""

    def doubt(self, batch: Batch, due: float) -> Iterator[Any]:
        return self.confirm(batch)


class SulkingLane(Lane):
    """Mutant: after a known no the rest of the batch is not sent again."""

    def refuse(self, batch: Batch, refs: Any, due: Callable[[int], float], why: Refused) -> None:
        super().refuse(batch, refs, due, why)
        for ref in batch.flight:
            if ref not in refs and ref in self.errands:
                self.discard(ref)


async def survive(seed: int, lane: type[Lane] = Lane, patience: float = 20.0) -> None:
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
    engine = Engine(facts, faulty(MORE, chance), sinks, sweeps={0: (Pod,)}, pace=QUICK)
    for courier in engine._round.couriers:
        courier.lane.__class__ = lane
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


@pytest.mark.parametrize("mutant", [TrustingLane, SulkingLane])
async def test_survival_can_fail(mutant: type[Lane]) -> None:
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
