"""A sink that takes all at once: its outside is never seen between two states."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import msgspec
from engine_world import QUICK, Flow, Pod, Setting, flow, until

from antrea.engine import Facts, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_world import Run


async def test_a_sink_that_takes_all_at_once_gets_what_many_passes_worked_out_in_one_call(world: Run) -> None:
    w = world((Unit(Pod, flow),), pace=msgspec.structs.replace(QUICK, batch=10), whole=True)
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
    assert [len(call[1]) for call in w.flows.calls[1:]] == [35, 2]


async def test_in_one_call_all_that_others_refer_to_comes_first_whichever_pass_it_is_of(world: Run) -> None:
    def ranked(_: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow(pod.name, rank=pod.port)

    w = world((Unit(Pod, ranked),), pace=QUICK, whole=True)
    await w.engine.quiet()
    w.flows.gate.clear()
    w.facts.put(Pod("first", 10))
    await until(lambda: len(w.flows.calls) == 2)
    w.facts.put(Pod("group", 10))
    w.facts.put(Pod("old", 50))
    await until(lambda: w.engine._evaluator.covered == w.facts.writes)
    w.facts.put(Pod("flow", 50), urgent=True)
    await until(lambda: w.engine._evaluator.covered == w.facts.writes)
    w.flows.gate.set()
    await w.engine.quiet()
    assert w.flows.calls[-1][1] == ["group", "flow", "old"]


async def test_such_a_sink_never_has_a_part_of_what_one_pass_worked_out(world: Run) -> None:
    def tunnelled(facts: Facts, pod: Pod) -> Iterator[Any]:
        setting = facts.get(Setting)
        yield Flow(pod.name, (setting.tunnel if setting else "",))

    pace = msgspec.structs.replace(QUICK, batch=10, slice=0.0)
    w = world((Unit(Pod, tunnelled),), pace=pace, whole=True)
    for n in range(50):
        w.facts.put(Pod(f"p{n}"))
    await w.engine.quiet()
    seen: list[set[str]] = []
    w.flows.on_call = lambda: seen.append({entry.actions[0] for entry in w.flows.state.values()})
    rnd = random.Random(1)
    for number in range(150):  # calls end in any place of a pass, one pass after others or none
        w.flows.gate.clear()
        for again in range(rnd.randrange(1, 4)):
            w.facts.put(Setting(f"tunnel{number}.{again}"))
            for _ in range(rnd.randrange(300)):
                await asyncio.sleep(0)
        w.flows.gate.set()
    w.flows.gate.set()
    await w.engine.quiet()
    assert len(seen) > 20
    assert {len(found) for found in seen} == {1}


async def test_after_an_unknown_outcome_such_a_sink_gets_the_same_again_and_then_halves(world: Run) -> None:
    w = world((Unit(Pod, flow),), pace=msgspec.structs.replace(QUICK, batch=10), whole=True)
    await w.engine.quiet()
    failures = iter([TimeoutError("no answer"), TimeoutError("no answer")])

    def fail() -> None:
        if (error := next(failures, None)) is not None:
            raise error

    w.flows.on_call = fail
    for n in range(40):
        w.facts.put(Pod(f"p{n}"))
    await w.engine.quiet()
    assert [len(call[1]) for call in w.flows.calls[1:]] == [40, 40, 20, 20]
