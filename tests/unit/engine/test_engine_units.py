"""What units and feeds may rely on: rows that they need, kinds that they watch, names of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from engine_world import UNITS, Announce, Flow, Member, Pod, Policy, Route, Setting

from antrea.engine import Engine, Facts, Plan, Unit
from antrea.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def test_a_watch_is_set_by_writes_of_its_kinds_alone_also_if_units_derive_them() -> None:
    facts = Facts()
    engine = Engine(facts, [UNITS[2]])
    with facts.watch(Member, Setting) as event:
        facts.put(Pod("p", 1, ("x",)))
        engine.plan()
        assert not event.is_set()
        facts.put(Policy("n", "x"))
        assert not event.is_set()
        engine.plan()
        assert event.is_set()
        event.clear()
        facts.drop(Setting, "self")
        assert event.is_set()
        event.clear()
        facts.synced(Setting)
        assert event.is_set()
    event.clear()
    facts.put(Setting())
    assert not event.is_set()


def tunnelled(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Route(pod.name)
    yield Announce("a", pod.name, pod.port)
    yield Flow(pod.name, (facts.need(Setting).tunnel,))


def tunnels(facts: Facts, pod: Pod) -> list[Any]:
    tunnel = facts.need(Setting).tunnel
    return [Route(pod.name), Announce("a", pod.name, pod.port), Flow(pod.name, (tunnel,))]


@pytest.mark.parametrize("entries", [tunnelled, tunnels])
def test_a_unit_wants_nothing_while_a_row_is_absent_that_it_needs(
    entries: Callable[[Facts, Pod], Any],
) -> None:
    engine = Engine(Facts(), [Unit(Pod, entries)])
    engine.facts.put(Pod("p"))
    assert (engine.plan(), engine.errors.counts) == (Plan([], [], []), {})
    engine.facts.put(Setting("vxlan"))
    found = [Flow("p", ("vxlan",)), Route("p")]
    assert engine.plan() == Plan(found, [], [Announce("a", "p", 0)])
    engine.facts.drop(Setting, "self")
    assert engine.plan() == Plan([], found[::-1], [])
    engine.facts.drop(Pod, "p")
    engine.plan()
    assert (engine.empty, engine.errors.counts) == (True, {})
    with pytest.raises(LookupError, match="there is no Setting 'self'"):
        engine.facts.need(Setting)


def in_one_feature() -> Unit:
    def flows(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow(f"one {pod.name}")

    return Unit(Pod, flows)


def in_another_feature() -> Unit:
    def flows(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow(f"another {pod.name}")

    return Unit(Pod, flows)


def test_refusals_of_two_units_whose_functions_share_a_name_are_both_reported() -> None:
    one, another = in_one_feature(), in_another_feature()
    engine = Engine(Facts(), [one, another])
    engine.facts.put(Pod("a"))
    for flow in engine.plan().put:
        cell = engine.facts.table(Flow).cell(flow.key)
        engine._ledger.refuse(cell, flow, Refused([flow], f"no {flow.match}"), lambda tries, nth: 0.0)
    assert [*engine.unrealized().items()] == [
        ((one.name, "a"), "no one a"),
        ((another.name, "a"), "no another a"),
    ]
