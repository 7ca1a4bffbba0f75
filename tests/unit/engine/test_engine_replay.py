"""The running engine: withdrawals, replays, sweeps, acts, and what `settled` waits for."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from engine_world import (
    CHAIN,
    QUICK,
    Announce,
    Flow,
    Member,
    Pod,
    Policy,
    Route,
    Snat,
    flow,
    until,
)

from antrea.engine import Act, Engine, Facts, Pace, Unit
from antrea.errors import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_world import Run


def failing(*outcomes: Exception | None) -> Callable[[], None]:
    """Fails, or not, as told at each call; later ones do not."""
    rest = iter(outcomes)

    def fail() -> None:
        if (error := next(rest, None)) is not None:
            raise error

    return fail


# 6. and 7. withdrawals, replays, sweeps


async def test_a_withdrawal_is_immediate_while_feeds_are_unsynced(world: Run) -> None:
    w = world(CHAIN, sweeps={0: (Pod, Policy)})
    w.facts.put(Pod("a", 1))
    await w.engine.settled(Pod, "a")
    w.facts.drop(Pod, "a")
    await w.engine.settled(Pod, "a")
    assert w.state == {}


async def test_quiet_does_not_wait_for_what_an_earlier_process_left_if_that_does_not_matter(
    world: Run,
) -> None:
    w = world(CHAIN, start=False, sweeps={0: (Pod,)})
    w.flows.gate.clear()
    w.flows.sweep_gate.clear()
    w.facts.put(Pod("a", 1))
    w.facts.synced(Pod)
    w.start()
    quiet = asyncio.create_task(w.engine.quiet(sweeps=False))
    every = asyncio.create_task(w.engine.quiet())
    await until(lambda: len(w.flows.calls) == 1)
    assert not quiet.done()
    w.flows.gate.set()
    async with asyncio.timeout(30):
        await quiet
    assert (len(w.state), every.done()) == (3, False)
    await until(lambda: ("sweep", 0) in w.flows.calls)
    await asyncio.sleep(0.01)
    assert not every.done()
    w.flows.sweep_gate.set()
    async with asyncio.timeout(30):
        await every


async def test_a_category_is_swept_once_its_feeds_have_synced_and_everything_is_replayed(world: Run) -> None:
    w = world(CHAIN, sweeps={0: (Pod,), 1: (Pod, Policy)})
    w.facts.put(Pod("a", 1))
    await w.engine.settled(Pod, "a")
    w.facts.put(Pod("b", 2))
    w.facts.synced(Pod)
    await until(lambda: ("sweep", 0) in w.flows.calls and ("sweep", 0) in w.host.calls)
    assert w.flows.calls == [("resync", ["a"]), ("apply", ["b"], []), ("sweep", 0)]
    w.facts.synced(Policy)
    await until(lambda: w.flows.calls[-1] == ("sweep", 1) == w.host.calls[-1])


async def test_no_sweep_before_the_replay_is_confirmed(world: Run) -> None:
    w = world((Unit(Pod, flow),), sweeps={0: (Pod,)}, start=False)
    w.flows.on_call = failing(TimeoutError(), TimeoutError())
    w.facts.put(Pod("a", 1))
    w.facts.synced(Pod)
    w.start()
    await until(lambda: ("sweep", 0) in w.flows.calls)
    assert w.flows.calls == [("resync", ["a"])] * 3 + [("sweep", 0)]


async def test_what_sends_is_swept_before_what_receives(world: Run) -> None:
    w = world(CHAIN, sweeps={0: (Pod,)}, start=False)
    w.facts.put(Pod("a", 1))
    w.facts.synced(Pod)
    w.flows.gate.clear()
    w.start()
    await until(lambda: bool(w.flows.calls))
    assert ("sweep", 0) not in w.host.calls
    w.flows.gate.set()
    await until(lambda: ("sweep", 0) in w.host.calls)
    assert w.flows.calls[-1] == ("sweep", 0)


async def test_a_failed_sweep_is_tried_again(world: Run) -> None:
    w = world((Unit(Pod, flow),), sweeps={0: (Pod,)}, start=False)
    w.flows.on_call = failing(None, TimeoutError("busy"))
    w.facts.synced(Pod)
    w.start()
    await until(lambda: ("sweep", 0) in w.flows.calls)
    assert w.engine.errors.counts == {"sink Switch": 1}


async def test_a_sweep_that_becomes_due_while_its_sink_looks_for_work_is_not_forgotten(world: Run) -> None:
    ticks = itertools.count()
    pace = Pace(first=0.0015, most=0.0015, clock=lambda: next(ticks) / 1000)
    w = world((Unit(Pod, flow),), sweeps={0: (Pod,)}, start=False, pace=pace)
    w.flows.on_call = failing(None, *[TimeoutError("busy")] * 5)
    w.facts.synced(Pod)
    w.start()
    await until(lambda: ("sweep", 0) in w.flows.calls)
    assert w.engine.errors.counts == {"sink Switch": 5}


async def test_a_sink_that_lost_everything_replays_it_in_one_call_and_sweeps_again(world: Run) -> None:
    w = world(CHAIN, sweeps={0: (Pod,)})
    for n in range(3):
        w.facts.put(Pod(f"p{n}", n))
    w.facts.synced(Pod)
    await until(lambda: ("sweep", 0) in w.flows.calls)
    await w.engine.quiet()
    w.flows.state.clear()
    w.flows.calls.clear()
    w.engine.resync(w.flows)
    await until(lambda: ("sweep", 0) in w.flows.calls)
    assert w.flows.calls == [("resync", ["p0", "p1", "p2"]), ("sweep", 0)]
    assert len(w.state) == 9


async def test_changes_during_a_replay_are_applied_after_it(world: Run) -> None:
    w = world((Unit(Pod, flow),), start=False)
    for n in range(3):
        w.facts.put(Pod(f"p{n}", 1))
    w.flows.gate.clear()
    w.start()
    await until(lambda: bool(w.flows.calls))
    w.facts.put(Pod("p1", 2))
    w.facts.drop(Pod, "p2")
    await until(lambda: w.engine._evaluator.covered == w.facts.writes)
    w.flows.gate.set()
    await w.engine.quiet()
    assert w.flows.calls == [("resync", ["p0", "p1", "p2"]), ("apply", ["p1"], ["p2"])]
    assert w.state == {(Flow, "p0"): Flow("p0", ("output:1",)), (Flow, "p1"): Flow("p1", ("output:2",))}


async def test_an_entry_refused_in_a_replay_takes_its_owner_out_whole(world: Run) -> None:
    w = world(CHAIN)
    for n in range(3):
        w.facts.put(Pod(f"p{n}", n))
    await w.engine.quiet()
    w.flows.state.clear()
    w.flows.refuse("p1")
    w.engine.resync(w.flows)
    await until(
        lambda: (
            set(w.state)
            == {(kind, key) for n in (0, 2) for kind, key in ((Snat, n), (Flow, f"p{n}"), (Route, f"p{n}"))}
        )
    )
    w.flows.on_entry = lambda entry: None
    await w.engine.settled(Pod, "p0")
    await until(lambda: len(w.state) == 9)


async def test_a_replay_that_waits_for_a_lower_rank_neither_spins_nor_sleeps_too_long(world: Run) -> None:
    w = world(CHAIN)
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    w.flows.refuse("a")
    w.facts.drop(Pod, "a")
    await until(lambda: w.engine.errors.counts["refused Flow"] >= 1 and not w.host.state)
    w.host.gate.clear()
    w.engine.resync(w.host)
    w.engine.resync(w.flows)
    await until(lambda: w.host.calls[-1][0] == "resync")
    queue = w.engine._ledger.queue(Flow)
    await until(
        lambda: (queue.next_due() or 0.0) <= QUICK.clock()
    )  # the refused drop is due for a retry meanwhile
    w.flows.on_entry = lambda entry: None
    w.host.gate.set()
    await w.engine.quiet()
    await until(lambda: w.engine.empty)
    assert w.state == {}


async def test_a_feed_that_has_not_synced_for_a_minute_is_named() -> None:
    now = [0.0]
    facts = Facts()
    engine = Engine(facts, CHAIN, sweeps={0: (Pod,), 1: (Pod, Policy)}, pace=Pace(clock=lambda: now[0]))
    assert engine.unsynced() == []
    now[0] = 59.0
    assert engine.unsynced() == []
    now[0] = 60.0
    assert engine.unsynced() == ["Pod", "Policy"]
    facts.synced(Pod)
    engine.plan()
    assert engine.unsynced() == ["Policy"]
    facts.synced(Policy)
    facts.lost(Pod)
    engine.plan()
    assert engine.unsynced() == []
    now[0] = 119.0
    assert engine.unsynced() == []
    now[0] = 120.0
    assert engine.unsynced() == ["Pod"]


# acts


def announce(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Announce(pod.name, pod.port)


async def ignore(act: Announce) -> None:
    pass


async def test_an_act_is_done_once_after_what_it_speaks_of_stands(world: Run) -> None:
    done: list[tuple[Any, bool]] = []

    async def do(act: Announce) -> None:
        done.append((act, (Flow, "a") in w.flows.state))

    w = world((Unit(Pod, announce), *CHAIN), acts={Announce: do})
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    w.engine.resync(w.flows)
    w.facts.put(Pod("a", 1, ("label",)))
    await w.engine.quiet()
    assert done == [(Announce("a", 1), True)]


async def test_an_act_that_fails_is_counted_and_not_repeated(world: Run) -> None:
    async def do(act: Announce) -> None:
        raise OSError("no such device")

    w = world((Unit(Pod, announce), Unit(Pod, lambda facts, pod: [Act(pod.name, 0)])), acts={Announce: do})
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    w.facts.put(Pod("b", 1))
    await w.engine.quiet()
    assert w.engine.errors.counts == {"act Announce": 2, "act Act": 2}


# settled


async def test_settled_waits_for_derived_rows_and_for_everything_written_before(world: Run) -> None:
    def derive(facts: Facts, pod: Pod) -> Iterator[Any]:
        for policy in facts.all(Policy):
            yield Member(policy.name, pod.name, pod.port, 1)

    w = world((Unit(Pod, derive, (Member,)), Unit(Member, lambda facts, member: [Flow(member.key)])))
    w.facts.put(Policy("n", "x"))
    w.facts.put(Pod("a", 1), urgent=True)
    await w.engine.settled(Pod, "a")
    assert w.state == {(Flow, "n/a"): Flow("n/a")}


async def test_settled_waits_for_what_the_row_shares_with_others(world: Run) -> None:
    w = world((Unit(Pod, lambda facts, label: [Flow(label)], by="label"),))
    w.flows.gate.clear()
    w.facts.put(Pod("a", 1, ("x",)))
    waiting = asyncio.create_task(w.engine.settled(Pod, "a"))
    await until(lambda: bool(w.flows.calls))
    assert not waiting.done()
    w.flows.gate.set()
    await waiting
    assert w.state == {(Flow, "x"): Flow("x")}


async def test_stand_waits_for_what_was_written_before_whoever_yields_it(world: Run) -> None:
    w = world((Unit(Pod, lambda facts, pod: [Flow(pod.name)]),))
    await w.engine.quiet()
    w.flows.gate.clear()
    w.facts.put(Pod("a", 1))
    w.facts.put(Pod("b", 1))
    waits = asyncio.create_task(w.engine.stand(Flow))
    await until(lambda: w.flows.calls[-1:] == [("apply", ["a", "b"], [])])
    assert not waits.done()
    w.flows.gate.set()
    await waits
    assert set(w.state) == {(Flow, "a"), (Flow, "b")}


async def test_stand_does_not_wait_for_what_is_refused(world: Run) -> None:
    w = world((Unit(Pod, lambda facts, pod: [Flow(pod.name)]),))
    w.flows.refuse("a")
    w.facts.put(Pod("a", 1))
    w.facts.put(Pod("b", 1))
    await w.engine.stand(Flow)
    assert set(w.state) == {(Flow, "b")}


async def test_settled_says_when_the_unit_fails_or_the_entries_clash(world: Run) -> None:
    def odd(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow(pod.labels[0], (f"output:{pod.port}",))

    w = world((Unit(Pod, odd),))
    w.facts.put(Pod("a", 1))
    with pytest.raises(Unavailable, match=r"odd\(Pod\) for a"):
        await w.engine.settled(Pod, "a")
    w.facts.put(Pod("a", 1, ("x",)))
    w.facts.put(Pod("b", 2, ("x",)))
    with pytest.raises(Refused, match="2 values for Flow"):
        await w.engine.settled(Pod, "b")
    w.facts.drop(Pod, "a")
    await w.engine.settled(Pod, "b")
    await w.engine.settled(Pod, "nobody")


async def test_a_failing_unit_is_tried_again_without_any_change(world: Run) -> None:
    broken = [True]

    def sometimes(facts: Facts, pod: Pod) -> Iterator[Any]:
        if broken[0]:
            raise MemoryError
        yield Route(pod.name)

    unit = Unit(Pod, sometimes)
    w = world((unit,))
    w.facts.put(Pod("a"))
    await until(lambda: w.engine.errors.counts[f"unit {unit.name}"] >= 3)
    broken[0] = False
    await until(lambda: w.state == {(Route, "a"): Route("a")})


async def test_what_was_lost_while_its_removal_was_refused_is_put_again_when_it_is_wanted_again(
    world: Run,
) -> None:
    w = world((Unit(Pod, flow),), pace=Pace(first=60.0, most=60.0))
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    w.flows.gate.clear()
    w.facts.drop(Pod, "a")
    await until(lambda: w.flows.calls[-1] == ("apply", [], ["a"]))
    w.flows.state.clear()
    w.engine.resync(w.flows)
    w.flows.refuse("a")
    w.flows.gate.set()
    await until(lambda: sum(call[0] == "resync" for call in w.flows.calls) == 2)
    w.facts.put(Pod("a", 1))
    w.flows.on_entry = lambda entry: None
    await w.engine.quiet()
    assert w.engine.applied() == w.state == {(Flow, "a"): Flow("a", ("output:1",))}


def with_shared_snat(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Snat(0, "all")
    yield Flow(pod.name, (f"output:{pod.port}",))


async def test_what_was_lost_while_its_confirmation_is_taken_in_is_put_again_when_it_is_wanted_again(
    world: Run,
) -> None:
    """With slices of no length, the answer of the sink is taken in one entry at a time."""
    w = world((Unit(Pod, with_shared_snat),), pace=Pace(first=60.0, most=60.0, slice=0))
    w.facts.put(Pod("first", 1))
    await w.engine.quiet()
    for n in range(3):
        w.facts.put(Pod(f"p{n}", 1))
    while w.flows.calls[-1] != ("apply", ["p0", "p1", "p2"], []):  # noqa: ASYNC110 (in that very turn)
        await asyncio.sleep(0)
    assert (Flow, "p2") not in w.engine.applied()
    w.host.gate.clear()  # flows are replayed after what receives their packets
    w.flows.state.clear()
    w.engine.resync(w.host)
    w.engine.resync(w.flows)
    await w.engine.settled(Pod, "p2")
    w.facts.drop(Pod, "p2")
    await until(lambda: w.engine._evaluator.covered == w.facts.writes)
    w.flows.refuse("p2")
    w.host.gate.set()
    await until(lambda: w.engine.errors.counts["refused Flow"] == 1)
    w.flows.on_entry = lambda entry: None
    w.facts.put(Pod("p2", 1))
    await w.engine.quiet()
    assert w.flows.state == {(Flow, n): Flow(n, ("output:1",)) for n in ("first", "p0", "p1", "p2")}
