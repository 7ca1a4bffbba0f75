"""What one change costs, counted in calls, comparisons and hashes: the same however much stands."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from call_count import cost
from engine_world import Flow, Member, Pod, Policy, Route, Setting, Snat, Status

from antrea.engine import Engine, Facts, Unit
from antrea.engine.core.desired import change
from antrea.engine.core.time_slice import SLICE
from antrea.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine.core.place import Cell

pytestmark = pytest.mark.untraced


class Counted(Flow, frozen=True):
    """A flow that counts how often it is compared or hashed, which C loops over entries do too."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flow) and (self.match, self.actions) == (other.match, other.actions)

    def __hash__(self) -> int:
        return hash((self.match, self.actions))


def own(facts: Facts, pod: Pod) -> Iterator[Any]:
    facts.get(Setting)
    yield Counted(pod.name, (f"output:{pod.port}",))


def share(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Counted("shared", ("drop",))


def unite(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Counted("shared", (f"conj({pod.port % 2})",))


def clash(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Counted("shared", (f"output:{pod.port}",))


def clash_of_rows(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Member("shared", "all", pod.port, 0)


def member(facts: Facts, pod: Pod) -> Iterator[Any]:
    """Each Pod of a group is a row of its own, so that one of 5,000 costs one."""
    for label in pod.labels:
        yield Member(label, pod.name, pod.port, facts.id("group", label))


def bucket(facts: Facts, row: Member) -> Iterator[Any]:
    yield Counted(row.key, (f"bucket:{row.port}",))


def with_rows(units: tuple[Unit, ...], count: int) -> Engine:
    engine = Engine(Facts(), units)
    engine.facts.put(Setting())
    for n in range(count):
        engine.facts.put(Pod(f"p{n}", n, ("web",)))
    engine.plan()
    return engine


def one_change(engine: Engine) -> int:
    """The second change, so that nothing is done for the first time; then one row comes and goes."""
    costs = []
    for port in (100_001, 100_003):

        def change(port: int = port) -> None:
            engine.facts.put(Pod("p5", port, ("web",)))
            engine.plan()

        def come_and_go(port: int = port) -> None:
            engine.facts.put(Pod("new", port, ("web",)))
            engine.plan()
            engine.facts.drop(Pod, "new")
            engine.plan()

        costs.append(cost(change) + cost(come_and_go))
    return costs[-1]


SHAPES = {
    "rows of their own": (Unit(Pod, own),),
    "sharers of one key": (Unit(Pod, share),),
    "sharers that unite": (Unit(Pod, unite),),
    "clashing entries": (Unit(Pod, clash),),
    "clashing rows": (Unit(Pod, clash_of_rows, (Member,)), Unit(Member, bucket)),
    "members of one group": (Unit(Pod, member, (Member,)), Unit(Member, bucket)),
    "what rows share": (Unit(Pod, own), Unit(Pod, lambda facts, label: [Counted(label)], by="label")),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_cost_of_one_change_does_not_grow_with_what_stands(shape: str) -> None:
    small, large = (one_change(with_rows(SHAPES[shape], count)) for count in (20, 5000))
    assert large == small


@pytest.mark.parametrize(
    ("unit", "entry", "owners"),
    [(own, Counted("p5", ("output:5",)), 1), (share, Counted("shared", ("drop",)), 10)],
)
def test_the_cost_of_one_refusal_does_not_grow_with_the_jobs_that_stand(
    unit: Any, entry: Counted, owners: int
) -> None:
    """Of an entry that stands, as in a replay: nobody waits for it, so its owners have to be found."""
    costs = []
    for count in (20, 5000):
        engine = with_rows((Unit(Pod, unit), Unit(Policy, lambda facts, policy: [Route(policy.name)])), 10)
        for n in range(count):
            engine.facts.put(Policy(f"n{n}", "web"))
        engine.plan()
        cell = engine._ledger.cell_of(entry)
        assert cell is not None
        refused = Refused([entry], "no")
        refuse = partial(engine._ledger.refuse, cell, entry, refused, lambda tries, nth: 0.0)
        SLICE.begin(math.inf)  # so that the clock is read at the same steps
        costs.append(cost(refuse))
        assert len(engine.unrealized()) == owners
        assert entry not in engine.standing().values()
    assert costs[0] == costs[1]


def test_what_stands_of_one_class_is_read_by_its_keys_alone() -> None:
    """None of the other entries is looked at, however many stand."""
    engine = with_rows(SHAPES["rows of their own"], 50)
    (first, *_) = [one for one in engine.standing().values() if isinstance(one, Flow)]
    assert list(engine.standing_of(type(first), lambda key: key == first.key)) == [first]
    assert list(engine.standing_of(type(first), lambda _: False)) == []
    assert list(engine.standing_of(Snat, lambda _: True)) == []


def test_growing_costs_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: looks at everything that stands at every change."""
    costs = []
    for count in (20, 500):
        engine = with_rows(SHAPES["rows of their own"], count)

        def rescanning(cell: Cell, owner: Any, old: Any, new: Any, engine: Engine = engine) -> None:
            engine.standing()
            change(cell, owner, old, new)

        monkeypatch.setattr("antrea.engine.core.ledger.change", rescanning)
        costs.append(one_change(engine))
        monkeypatch.undo()
    assert costs[1] > 3 * costs[0]


def test_a_hash_or_comparison_of_an_entry_in_a_c_loop_is_counted() -> None:
    flows = [Counted(str(n)) for n in range(100)]
    assert cost(lambda: set(flows)) > 100
    assert cost(lambda: Counted("none") in flows) > 100


def everything(facts: Facts, pod: Pod) -> Iterator[Any]:
    """One entry of its own, and in turn one of every other sort."""
    facts.all(Policy)
    others = (
        Flow(f"label={pod.labels[0]}", ("drop",)),
        Flow("all", (f"conj({pod.port})",)),
        Snat(pod.port, pod.name),
        Status(pod.name, str(facts.rank("order", (pod.port,)))),
    )
    yield Route(str(facts.id("mark", pod.name)))
    yield others[pod.port % 4]


def test_ten_thousand_that_came_and_went_leave_every_table_empty() -> None:
    engine = Engine(Facts(), [Unit(Pod, everything), *SHAPES["members of one group"]])
    for start in range(0, 10_000, 500):
        pods = [Pod(f"p{n}", n, (f"g{n % 7}",)) for n in range(start, start + 500)]
        for pod in pods:
            engine.facts.put(pod)
        assert len(engine.plan().put) == 2 * 500 + 250 + 7 + 1
        for pod in pods:
            engine.facts.drop(Pod, pod.name)
        engine.plan()
    assert (engine.empty, engine.standing(), engine.applied(), engine.facts.ids.standing()) == (
        True,
        {},
        {},
        {},
    )
    assert tables_of(engine) == {}


def tables_of(engine: Engine) -> dict[str, int]:
    """Every list, set and dict that can be reached from the engine and still holds anything of a Pod."""
    found: dict[str, int] = {}
    todo: list[tuple[str, Any]] = [("engine", engine)]
    seen: set[int] = set()
    while todo:
        path, thing = todo.pop()
        if id(thing) in seen or isinstance(thing, (type, str, int)):
            continue
        seen.add(id(thing))
        if isinstance(thing, (dict, list, set, tuple, frozenset)):
            if len(thing) > 20:
                found[path] = len(thing)
            items = list(thing.values()) if isinstance(thing, dict) else list(thing)
            todo += [(f"{path}[]", item) for item in items]
        elif type(thing).__module__.startswith("antrea.engine"):
            names = [*getattr(thing, "__dict__", {}), *getattr(type(thing), "__slots__", ())]
            todo += [(f"{path}.{name}", getattr(thing, name)) for name in names]
    return found
