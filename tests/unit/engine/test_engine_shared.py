"""One key that several jobs want: values that differ in bookkeeping alone are the same state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from engine_world import Flow, Pod

from antrea.engine import Engine, Facts, Plan, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")])
def test_entries_that_differ_in_bookkeeping_alone_are_one_which_is_put_first_and_dropped_last(
    order: tuple[str, ...],
) -> None:
    """Also those that unite; when an owner leaves, what is left of its bookkeeping goes."""
    books = {"a": (3, 60), "b": (2, 70), "c": (5, 40)}

    def same(facts: Facts, pod: Pod) -> Iterator[Any]:
        category, rank = books[pod.name]
        yield Flow("shared", ("drop",), category, rank)
        yield Flow("united", (f"conj({pod.port})",), category, rank)

    engine = Engine(Facts(), [Unit(Pod, same)])
    for name in order:
        engine.facts.put(Pod(name, ord(name)))
        engine.plan()
    united = ("conj(97)", "conj(98)", "conj(99)")
    assert set(engine.standing().values()) == {
        Flow("shared", ("drop",), 2, 40),
        Flow("united", united, 2, 40),
    }
    engine.facts.drop(Pod, "b")
    engine.facts.drop(Pod, "c")
    plan = engine.plan()
    assert plan.drop == []
    assert set(engine.standing().values()) == {
        Flow("shared", ("drop",), 3, 60),
        Flow("united", ("conj(97)",), 3, 60),
    }
    engine.facts.put(Pod("a", 97, ("other",)))
    assert engine.plan() == Plan([], [], [])
    engine.facts.drop(Pod, "a")
    assert len(engine.plan().drop) == 2
    assert engine.errors.counts == {}


def test_of_different_states_the_first_holds_the_key_with_all_that_want_the_same() -> None:
    states = {"a": ("drop", 3), "b": ("output", 2), "c": ("drop", 1)}

    def differing(facts: Facts, pod: Pod) -> Iterator[Any]:
        action, category = states[pod.name]
        yield Flow("shared", (action,), category)

    engine = Engine(Facts(), [Unit(Pod, differing)])
    for name in states:
        engine.facts.put(Pod(name))
        engine.plan()
    assert set(engine.standing().values()) == {Flow("shared", ("drop",), 1)}
    assert set(engine.errors.counts) == {"clash Flow"}
    engine.facts.drop(Pod, "b")
    engine.plan()
    assert set(engine.standing().values()) == {Flow("shared", ("drop",), 1)}
