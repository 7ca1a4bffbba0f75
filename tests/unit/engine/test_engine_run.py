"""The running engine: slices, order across sinks, urgency, refusals and doubts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from engine_world import (
    CHAIN,
    QUICK,
    Announce,
    Flow,
    Pod,
    Policy,
    Route,
    Setting,
    Snat,
    Status,
    flow,
    status,
    until,
)

from antrea.engine import Facts, Pace, Unit
from antrea.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_world import Run


def announce(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Announce(pod.name, pod.port)


async def ignore(act: Announce) -> None:
    pass


async def test_what_is_wanted_reaches_the_sinks_and_goes_again(world: Run) -> None:
    w = world(CHAIN)
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    assert w.state == {
        (Snat, 1): Snat(1, "a"),
        (Flow, "a"): Flow("a", ("output:1",)),
        (Route, "a"): Route("a"),
    }
    assert w.engine.applied() == w.engine.standing() == w.state
    w.facts.drop(Pod, "a")
    await w.engine.quiet()
    assert (w.state, w.engine.empty) == ({}, True)


async def test_an_entry_that_a_long_unit_wants_again_stays_though_its_removal_ends_meanwhile(
    world: Run,
) -> None:
    w: Any = None

    def many(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow("shared", ("drop",))
        for n in range(2000 if pod.name == "long" else 0):
            if n == 100:
                w.flows.gate.set()
            yield Flow(f"{pod.port} {n}")

    w = world((Unit(Pod, many),), pace=msgspec.structs.replace(QUICK, slice=0.0))
    w.facts.put(Pod("short"))
    await w.engine.quiet()
    w.flows.gate.clear()
    w.facts.drop(Pod, "short")
    await until(lambda: w.flows.calls[-1] == ("apply", [], ["shared"]))
    w.facts.put(Pod("long", 1))
    await w.engine.quiet()
    w.facts.put(Pod("long", 2))
    await w.engine.quiet()
    assert (Flow, "shared") in w.state
    assert w.engine.applied() == w.engine.standing() == w.state
    w.facts.drop(Pod, "long")
    await w.engine.quiet()
    assert (w.state, w.engine.empty) == ({}, True)


# 1. unknown outcomes


async def test_an_unknown_outcome_marks_keys_dirty_and_they_are_tried_again(world: Run) -> None:
    w = world(CHAIN)
    await w.engine.quiet()
    failures = iter([TimeoutError("no answer"), TimeoutError("no answer"), None])

    def fail() -> None:
        if (error := next(failures, None)) is not None:
            raise error

    w.flows.on_call = fail
    w.facts.put(Pod("a", 1))
    await w.engine.settled(Pod, "a")
    assert w.flows.calls[1:] == [("apply", ["a"], [])] * 3
    assert w.engine.errors.counts == {"sink Switch": 2}
    assert w.engine.errors.standing == {}


async def test_what_may_have_been_put_is_dropped_when_nobody_wants_it_any_more(world: Run) -> None:
    w = world((Unit(Pod, flow),))
    await w.engine.quiet()

    def applied_but_no_answer(entry: Any) -> None:
        w.flows.state[type(entry), entry.key] = entry
        raise TimeoutError

    w.flows.on_entry = applied_but_no_answer
    w.facts.put(Pod("a", 1))
    await until(lambda: bool(w.flows.state))
    w.flows.on_entry = lambda entry: None
    w.facts.drop(Pod, "a")
    await w.engine.quiet()
    assert (w.state, w.engine.empty) == ({}, True)


async def test_one_entry_that_always_times_out_is_soon_alone(world: Run) -> None:
    w = world((Unit(Pod, flow),))
    await w.engine.quiet()

    def fail(entry: Any) -> None:
        if entry.key == "p37":
            raise TimeoutError

    w.flows.on_entry = fail
    for n in range(100):
        w.facts.put(Pod(f"p{n}", 1))
    await until(lambda: len(w.engine.applied()) == 99)
    w.facts.put(Pod("new", 1))
    await w.engine.settled(Pod, "new")
    w.flows.on_entry = lambda entry: None
    await w.engine.settled(Pod, "p37")
    assert len(w.state) == 101


# 2. slices


async def test_a_pass_breathes_and_writes_meanwhile_join_the_next_one(world: Run) -> None:
    seen: list[tuple[str, str]] = []
    fifth = asyncio.Event()

    def reading(facts: Facts, pod: Pod) -> Iterator[Any]:
        setting = facts.get(Setting)
        seen.append((pod.name, setting.tunnel if setting else ""))
        if len(seen) == 5:
            fifth.set()
        yield Flow(pod.name, (setting.tunnel if setting else "",))

    w = world((Unit(Pod, reading),), pace=msgspec.structs.replace(QUICK, slice=0.0))
    w.facts.put(Setting("geneve"))
    for n in range(50):
        w.facts.put(Pod(f"p{n:02}"))
    await fifth.wait()
    assert len(seen) < 50
    w.facts.put(Setting("vxlan"))
    assert w.facts.get(Setting) == Setting("vxlan")
    await w.engine.quiet()
    names = [f"p{n:02}" for n in range(50)]
    assert seen == [(name, "geneve") for name in names] + [(name, "vxlan") for name in names]


async def test_a_feed_sees_its_own_writes_during_a_pass(world: Run) -> None:
    started = asyncio.Event()

    def starting(facts: Facts, pod: Pod) -> Iterator[Any]:
        started.set()
        yield from flow(facts, pod)

    w = world((Unit(Pod, starting),), pace=msgspec.structs.replace(QUICK, slice=0.0))
    for n in range(20):
        w.facts.put(Pod(f"p{n:02}", n, ("a",)))
    await started.wait()
    w.facts.put(Pod("new", 1, ("a",)))
    w.facts.put(Pod("p03", 33, ("b",)))
    w.facts.drop(Pod, "p04")
    expected = ["new", *(f"p{n:02}" for n in range(20) if n not in (3, 4))]
    assert [pod.name for pod in w.facts.by(Pod, "label", "a")] == expected
    assert [pod.name for pod in w.facts.by(Pod, "label", "b")] == ["p03"]
    assert len(w.facts.all(Pod)) == 20
    assert w.facts.busy
    assert (w.facts.get(Pod, "p04"), w.facts.get(Pod, "p03")) == (None, Pod("p03", 33, ("b",)))
    w.facts.replace(Pod, [Pod("only", 1, ("a",))])
    assert w.facts.all(Pod) == w.facts.by(Pod, "label", "a") == [Pod("only", 1, ("a",))]
    await w.engine.quiet()
    assert w.state == {(Flow, "only"): Flow("only", ("output:1",))}


@pytest.mark.untraced
async def test_the_loop_goes_on_while_thousands_of_entries_are_computed(world: Run) -> None:
    w = world((Unit(Pod, flow),), pace=Pace(slice=0))
    await w.engine.quiet()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(count())
    w.facts.replace(Pod, [Pod(f"p{n}", n) for n in range(10_000)])
    await w.engine.quiet()
    task.cancel()
    assert len(w.state) == 10_000
    assert turns > 1_000  # slices of no length; benchmarks/engine.py measures the lag


# 3. order


async def test_what_receives_a_packet_is_put_before_what_sends_it_there(world: Run) -> None:
    w = world(CHAIN)
    await w.engine.quiet()
    order: list[str] = []
    w.flows.on_entry = lambda entry: order.append(f"flows {entry.rank}")
    w.host.on_entry = lambda entry: order.append(f"host {entry.rank}")
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    assert order == ["host 10", "flows 50", "host 90"]
    order.clear()
    w.facts.drop(Pod, "a")
    await w.engine.quiet()
    assert order == ["host 90", "flows 50", "host 10"]


async def test_a_higher_rank_waits_for_a_lower_one_of_its_pass_but_later_passes_do_not(world: Run) -> None:
    units = (*CHAIN, Unit(Policy, lambda facts, policy: [Flow(policy.name)]))
    w = world(units)
    await w.engine.quiet()
    w.host.gate.clear()
    w.facts.put(Pod("a", 1))
    await until(lambda: w.host.calls[-1] == ("apply", [1], []))
    w.facts.put(Policy("n", "x"))
    await w.engine.settled(Policy, "n")
    assert w.flows.state == {(Flow, "n"): Flow("n")}
    w.host.gate.set()
    await w.engine.settled(Pod, "a")
    assert set(w.flows.state) == {(Flow, "n"), (Flow, "a")}


async def test_a_changed_flow_is_confirmed_before_what_received_its_packets_goes(world: Run) -> None:
    w = world(CHAIN)
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    order: list[Any] = []
    for switch in (w.flows, w.host):
        switch.on_entry = lambda entry: order.append(entry.key)
    w.facts.put(Pod("a", 2))
    await w.engine.quiet()
    assert order == [2, "a", 1]


async def test_a_flow_stays_until_the_one_that_takes_its_place_stands_though_that_waits_for_the_host(
    world: Run,
) -> None:
    def way(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Snat(pod.port, pod.name)
        yield Flow(f"{pod.name} by {pod.port}")

    w = world([Unit(Pod, way)])
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    w.host.gate.clear()
    w.facts.put(Pod("a", 2))
    await until(lambda: w.host.calls[-1] == ("apply", [2], []))
    assert set(w.flows.state) == {(Flow, "a by 1")}
    w.host.gate.set()
    await w.engine.quiet()
    assert w.flows.calls[-1] == ("apply", ["a by 2"], ["a by 1"])
    assert set(w.flows.state) == {(Flow, "a by 2")}


async def test_nothing_waits_for_what_only_reports(world: Run) -> None:
    w = world((Unit(Pod, status), *CHAIN, Unit(Pod, announce)), acts={Announce: ignore})
    w.api.gate.clear()
    w.facts.put(Pod("a", 1))
    await w.engine.settled(Pod, "a")
    w.facts.put(Pod("a", 2))
    await w.engine.settled(Pod, "a")
    assert (len(w.state), w.api.state) == (3, {})
    assert w.engine.empty is False
    w.api.gate.set()
    await w.engine.quiet()
    assert w.api.state == {(Status, "a"): Status("a", "2")}


async def test_quiet_waits_for_the_network_alone_if_reports_do_not_matter(world: Run) -> None:
    w = world((Unit(Pod, status), *CHAIN))
    w.api.gate.clear()
    w.flows.gate.clear()
    w.facts.put(Pod("a", 1))
    quiet = asyncio.create_task(w.engine.quiet(reports=False))
    every = asyncio.create_task(w.engine.quiet())
    await until(lambda: len(w.flows.calls) == 1)
    assert not quiet.done()
    w.flows.gate.set()
    async with asyncio.timeout(30):
        await quiet
    assert (len(w.state), w.api.state, every.done()) == (3, {}, False)
    w.api.gate.set()
    async with asyncio.timeout(30):
        await every
    assert w.api.state == {(Status, "a"): Status("a", "1")}


# 4. urgency


async def test_urgent_rows_go_alone_in_the_next_batch_and_bulk_in_limited_ones(world: Run) -> None:
    w = world((Unit(Pod, flow),), pace=msgspec.structs.replace(QUICK, batch=10))
    await w.engine.quiet()
    w.flows.gate.clear()
    for n in range(35):
        w.facts.put(Pod(f"bulk{n}"))
    await until(lambda: len(w.flows.calls) == 2)
    w.facts.put(Pod("more"))
    w.facts.put(Pod("urgent", 1), urgent=True)
    await until(lambda: w.engine._evaluator.covered == w.facts.writes)
    w.flows.gate.set()
    await w.engine.quiet()
    puts = [call[1] for call in w.flows.calls[1:]]
    assert [len(put) for put in puts] == [10, 1, 10, 10, 6]
    assert puts[1] == ["urgent"]


async def test_urgent_jobs_run_before_bulk_ones_that_wait(world: Run) -> None:
    w = world((Unit(Pod, flow),), start=False)
    for n in range(5):
        w.facts.put(Pod(f"bulk{n}"))
    w.facts.put(Pod("urgent", 1), urgent=True)
    w.flows.gate.clear()
    evaluator = w.engine._evaluator
    for _ in evaluator.run(bulk=False):
        pass
    assert list(w.engine.standing()) == [(Flow, "urgent")]
    for _ in evaluator.run(bulk=True):
        pass
    assert len(w.engine.standing()) == 6


# 5. refusals


async def test_a_refused_entry_holds_back_its_owner_whole_and_others_go_on(world: Run) -> None:
    w = world(CHAIN)
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    before = w.state
    w.flows.refuse("a", "b")
    w.facts.put(Pod("a", 2))
    w.facts.put(Pod("b", 3))
    w.facts.put(Pod("c", 4))
    await w.engine.settled(Pod, "c")
    for name in ("a", "b"):
        with pytest.raises(Refused, match=f"{name} is too big"):
            await w.engine.settled(Pod, name)
    await until(
        lambda: (
            w.state
            == before
            | {(Snat, 4): Snat(4, "c"), (Route, "c"): Route("c"), (Flow, "c"): Flow("c", ("output:4",))}
        )
    )
    assert w.engine.errors.counts["refused Flow"] >= 2


async def test_a_held_owner_is_tried_again_and_comes_whole(world: Run) -> None:
    w = world(CHAIN)
    w.flows.refuse("a")
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    await until(lambda: w.state == {})
    w.flows.on_entry = lambda entry: None
    await until(lambda: len(w.state) == 3)
    await w.engine.settled(Pod, "a")
    assert w.engine.errors.standing == {}


async def test_a_new_version_of_a_held_owner_is_tried_at_once(world: Run) -> None:
    w = world((Unit(Pod, flow),), pace=Pace(first=3600.0, most=3600.0))

    def refuse(entry: Any) -> None:
        if entry.actions == ("output:1",):
            raise Refused([entry], "no such port")

    w.flows.on_entry = refuse
    w.facts.put(Pod("a", 1))
    with pytest.raises(Refused):
        await w.engine.settled(Pod, "a")
    w.facts.put(Pod("a", 2))
    await w.engine.settled(Pod, "a")
    assert w.state == {(Flow, "a"): Flow("a", ("output:2",))}


async def test_a_held_owner_that_is_withdrawn_leaves_nothing(world: Run) -> None:
    w = world(CHAIN, pace=Pace(first=3600.0, most=3600.0))
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    w.flows.refuse("a")
    w.facts.put(Pod("a", 2))
    with pytest.raises(Refused):
        await w.engine.settled(Pod, "a")
    w.flows.on_entry = lambda entry: None
    w.facts.drop(Pod, "a")
    await w.engine.settled(Pod, "a")
    await w.engine.quiet()
    assert (w.state, w.engine.empty, w.engine.errors.standing) == ({}, True, {})


async def test_only_the_newcomer_is_held_back_when_a_shared_entry_grows_too_big(world: Run) -> None:
    def conjunction(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow("shared", (f"conj({pod.port})",))
        yield Route(pod.name)

    w = world((Unit(Pod, conjunction),))
    for n in (1, 2, 3):
        w.facts.put(Pod(f"p{n}", n))
    await w.engine.quiet()

    def at_most_three(entry: Any) -> None:
        if isinstance(entry, Flow) and len(entry.actions) > 3:
            raise Refused([entry], "does not fit a message")

    w.flows.on_entry = at_most_three
    w.facts.put(Pod("p4", 4))
    with pytest.raises(Refused, match="does not fit"):
        await w.engine.settled(Pod, "p4")
    for n in (1, 2, 3):
        await w.engine.settled(Pod, f"p{n}")
    await until(lambda: set(w.state) == {(Flow, "shared"), *((Route, f"p{n}") for n in (1, 2, 3))})
    assert w.flows.state[Flow, "shared"].actions == ("conj(1)", "conj(2)", "conj(3)")
    w.facts.drop(Pod, "p1")
    await w.engine.settled(Pod, "p1")
    await until(lambda: w.flows.state[Flow, "shared"].actions == ("conj(2)", "conj(3)", "conj(4)"))


async def test_a_newcomer_to_two_shared_entries_that_grow_too_big_holds_nobody_else_back(world: Run) -> None:
    def conjunctions(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow("one", (f"conj({pod.port})",))
        yield Flow("two", (f"conj({pod.port})",))

    w = world((Unit(Pod, conjunctions),))
    w.facts.put(Pod("p1", 1))
    w.facts.put(Pod("p2", 2))
    await w.engine.quiet()

    def at_most_two(entry: Any) -> None:
        if len(entry.actions) > 2:
            raise Refused([Flow("one"), Flow("two")], "both do not fit a message")

    w.flows.on_entry = at_most_two
    w.facts.put(Pod("p3", 3))
    with pytest.raises(Refused, match="both do not fit"):
        await w.engine.settled(Pod, "p3")
    held = [ref[2] for ref in w.engine.errors.standing if isinstance(ref, tuple) and ref[0] == "held"]
    assert held == ["p3"]
    assert {flow.actions for flow in w.flows.state.values()} == {("conj(1)", "conj(2)")}


async def test_a_refused_drop_is_tried_again(world: Run) -> None:
    w = world((Unit(Pod, flow),))
    w.facts.put(Pod("a", 1))
    await w.engine.quiet()
    w.flows.refuse("a")
    w.facts.drop(Pod, "a")
    await until(lambda: w.engine.errors.counts["refused Flow"] >= 2)
    w.flows.on_entry = lambda entry: None
    await until(lambda: w.engine.empty)
    assert w.state == {}


async def test_a_refusal_that_names_none_of_the_batch_is_an_unknown_outcome(world: Run) -> None:
    w = world((Unit(Pod, flow),))
    await w.engine.quiet()
    answers = iter([Refused([Flow("stranger")], "?"), None])

    def on_call() -> None:
        if (error := next(answers, None)) is not None:
            raise error

    w.flows.on_call = on_call
    w.facts.put(Pod("a", 1))
    await w.engine.settled(Pod, "a")
    assert w.engine.errors.counts == {"sink Switch": 1}
