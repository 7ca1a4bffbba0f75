"""Numbers keep their meaning: over restarts, while entries carry them, until the last round is swept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from engine_world import UNITS, Flow, Notebook, Pod, Policy, Snat, until

from antrea.engine import Engine, Facts, Record, Unit
from antrea.engine.ids import Ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_world import Run


def marked(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Snat(facts.id("mark", pod.name), pod.name)


MARKED = (Unit(Pod, marked),)


def test_numbers_start_at_one_and_stay_with_their_key() -> None:
    ids = Ids()
    assert [ids.number("mark", key) for key in ("a", "b", "a")] == [1, 2, 1]
    assert ids.number("group", "a") == 1


def test_a_number_is_journalled_before_it_is_used() -> None:
    notebook = Notebook()
    ids = Ids(notebook)
    ids.number("mark", "a")
    assert notebook.records == [Record("mark", "a", 1)]

    def broken() -> None:
        raise OSError("disk full")

    notebook.fault = broken
    with pytest.raises(OSError, match="disk full"):
        ids.number("mark", "b")
    assert ids.standing() == {("mark", "a"): 1}
    notebook.fault = lambda: None
    assert ids.number("mark", "b") == 2


def test_a_restart_reads_the_journal_and_the_smallest_free_number_is_next() -> None:
    history = [("a", 1), ("b", 2), ("c", 3), ("b", 0), ("d", 2), ("a", 0)]
    ids = Ids(Notebook(Record("mark", key, number) for key, number in history))
    assert ids.standing() == {("mark", "c"): 3, ("mark", "d"): 2}
    assert [ids.number("mark", key) for key in ("c", "d", "e", "f")] == [3, 2, 1, 4]


def test_when_the_line_that_freed_a_number_was_lost_the_later_owner_has_it() -> None:
    ids = Ids(Notebook([Record("mark", "a", 1), Record("mark", "b", 1)]))
    assert ids.standing() == {("mark", "b"): 1}


def test_the_journal_does_not_grow_with_history() -> None:
    notebook = Notebook()
    ids = Ids(notebook)
    for n in range(5000):
        ids.number("mark", f"k{n}")
        ids.hold(("mark", f"k{n}"))
        ids.release(("mark", f"k{n}"))
    assert ids.standing() == {}
    assert len(notebook.records) <= 1001


def test_without_a_journal_a_pool_starts_above_what_was_found_until_that_is_swept() -> None:
    ids = Ids()
    ids.start_above("mark", 7)
    assert [ids.number("mark", key) for key in ("a", "b")] == [8, 9]
    ids.hold(("mark", "a"))
    ids.release(("mark", "a"))
    ids.swept()
    assert [ids.number("mark", key) for key in ("c", "d")] == [1, 2]
    assert [ids.number("mark", f"e{n}") for n in range(7)] == [3, 4, 5, 6, 7, 8, 10]


def test_a_full_pool_says_so_and_goes_on_when_a_number_is_freed() -> None:
    engine = Engine(Facts(), MARKED)
    engine.facts.ids.limit("mark", 2)
    for name in ("a", "b", "c"):
        engine.facts.put(Pod(name))
    assert engine.plan().put == [Snat(1, "a"), Snat(2, "b")]
    assert "a free number in pool mark (all 2 are in use)" in engine.errors.standing[MARKED[0].name, "c"]
    engine.facts.drop(Pod, "a")
    engine.plan()
    assert engine.plan().put == [Snat(1, "c")]


def test_a_number_that_a_job_uses_again_is_not_freed() -> None:
    engine = Engine(Facts(), [Unit(Pod, lambda facts, pod: [Snat(facts.id("mark", pod.labels[0]), "ip")])])
    engine.facts.put(Pod("a", 0, ("x",)))
    engine.plan()
    engine.facts.drop(Pod, "a")
    engine.facts.put(Pod("b", 0, ("x",)))
    assert (engine.plan().put, engine.facts.ids.standing()) == ([], {("mark", "x"): 1})
    engine.facts.drop(Pod, "b")
    engine.plan()
    assert (engine.facts.ids.standing(), engine.empty) == ({}, True)


async def test_a_number_is_freed_only_after_the_entry_that_carried_it_is_gone(world: Run) -> None:
    w = world(MARKED)
    w.facts.put(Pod("a"))
    await w.engine.quiet()
    w.host.gate.clear()
    w.facts.drop(Pod, "a")
    w.facts.put(Pod("b"))
    await until(lambda: w.engine._evaluator.covered == w.facts.writes)
    assert w.facts.ids.standing() == {("mark", "a"): 1, ("mark", "b"): 2}
    w.host.gate.set()
    await w.engine.quiet()
    assert w.facts.ids.standing() == {("mark", "b"): 2}


async def test_a_number_that_only_a_derived_row_passed_on_waits_for_the_flows_too(world: Run) -> None:
    w = world(UNITS)
    w.facts.put(Pod("p", 5, ("a",)))
    w.facts.put(Policy("n", "a"))
    await w.engine.quiet()
    assert w.flows.state[Flow, "port=5"] == Flow("port=5", ("conj(1)",))
    w.flows.gate.clear()
    w.facts.drop(Policy, "n")
    w.facts.put(Policy("m", "b"))
    await w.engine.settled(Policy, "m")
    assert w.facts.ids.standing() == {("conjunction", "n"): 1, ("conjunction", "m"): 2}
    w.flows.gate.set()
    await w.engine.quiet()
    assert w.facts.ids.standing() == {("conjunction", "m"): 2}


async def test_numbers_nobody_asks_for_after_a_restart_are_freed_once_everything_is_swept(world: Run) -> None:
    notebook = Notebook([Record("mark", "gone", 1), Record("mark", "a", 2)])
    w = world(MARKED, facts=Facts(notebook), sweeps={1: (Pod,)}, start=False)
    w.facts.ids.start_above("group", 9)
    w.facts.put(Pod("a"))
    w.start()
    await w.engine.settled(Pod, "a")
    assert w.facts.ids.standing() == {("mark", "a"): 2, ("mark", "gone"): 1}
    w.facts.synced(Pod)
    await until(lambda: w.facts.ids.standing() == {("mark", "a"): 2})
    assert w.host.state == {(Snat, 2): Snat(2, "a")}
    assert w.facts.id("group", "first") == 1
    assert notebook.records[-2:] == [Record("mark", "gone", 0), Record("group", "first", 1)]
