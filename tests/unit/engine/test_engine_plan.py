"""Single steps: what comes out of a pass when facts change, jobs share, unite, clash or fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from engine_world import UNITS, Announce, Flow, Member, Pod, Policy, Route, Setting, Snat, Status, faulty

from antrea.engine import Act, Clash, Engine, Entry, Facts, Plan, Unit
from antrea.errors import Refused
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def engine_of(*units: Unit) -> Engine:
    return Engine(Facts(), units)


def one_flow(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Flow(pod.labels[0], (f"output:{pod.port}",))


def test_an_entry_class_of_the_world_is_an_entry() -> None:
    assert all(isinstance(entry, Entry) for entry in (Flow("m"), Snat(1, "ip"), Route("r"), Status("s", "t")))


def test_a_pass_puts_what_is_new_changes_what_differs_and_drops_what_is_gone() -> None:
    engine = engine_of(Unit(Pod, one_flow))
    engine.facts.put(Pod("a", 1, ("x",)))
    assert engine.plan() == Plan([Flow("x", ("output:1",))], [], [])
    assert engine.plan() == Plan([], [], [])
    engine.facts.put(Pod("a", 2, ("x",)))
    assert engine.plan() == Plan([Flow("x", ("output:2",))], [], [])
    engine.facts.put(Pod("a", 2, ("y",)))
    assert engine.plan() == Plan([Flow("y", ("output:2",))], [Flow("x", ("output:2",))], [])
    engine.facts.drop(Pod, "a")
    assert engine.plan() == Plan([], [Flow("y", ("output:2",))], [])
    assert engine.empty


def test_puts_come_by_rank_and_drops_in_reverse() -> None:
    engine = engine_of(*UNITS)
    engine.facts.put(Policy("n", "a"))
    engine.facts.put(Pod("p", 1, ("a",)))
    plan = engine.plan()
    assert [entry.rank for entry in plan.put] == [10, 50, 50, 50, 90, 1000]
    engine.facts.drop(Policy, "n")
    engine.facts.drop(Pod, "p")
    assert [entry.rank for entry in engine.plan().drop] == [90, 50, 50, 50, 10]


def test_a_key_that_moves_from_one_job_to_another_in_one_pass_is_no_difference() -> None:
    engine = engine_of(Unit(Pod, one_flow))
    engine.facts.put(Pod("a", 1, ("x",)))
    engine.plan()
    engine.facts.drop(Pod, "a")
    engine.facts.put(Pod("b", 1, ("x",)))
    assert engine.plan() == Plan([], [], [])
    engine.facts.drop(Pod, "b")
    engine.facts.put(Pod("c", 3, ("x",)))
    assert engine.plan() == Plan([Flow("x", ("output:3",))], [], [])


def test_a_shared_key_goes_with_its_last_owner() -> None:
    engine = engine_of(Unit(Pod, one_flow))
    for name in ("a", "b", "c"):
        engine.facts.put(Pod(name, 1, ("x",)))
    assert engine.plan() == Plan([Flow("x", ("output:1",))], [], [])
    engine.facts.drop(Pod, "a")
    engine.facts.drop(Pod, "b")
    assert engine.plan() == Plan([], [], [])
    engine.facts.drop(Pod, "c")
    assert engine.plan() == Plan([], [Flow("x", ("output:1",))], [])


def test_entries_with_parts_unite_and_part_again() -> None:
    def conjunction(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow("shared", (f"conj({pod.port})",))

    engine = engine_of(Unit(Pod, conjunction))
    for name, port in (("a", 2), ("b", 1), ("c", 1)):
        engine.facts.put(Pod(name, port))
    assert engine.plan().put == [Flow("shared", ("conj(1)", "conj(2)"))]
    engine.facts.drop(Pod, "b")
    assert engine.plan() == Plan([], [], [])
    engine.facts.drop(Pod, "c")
    assert engine.plan().put == [Flow("shared", ("conj(2)",))]


class Ports(Fact, frozen=True):
    label: str
    parts: tuple[int, ...]

    @property
    def key(self) -> str:
        return self.label

    def with_parts(self, parts: tuple[int, ...]) -> Ports:
        return Ports(self.label, parts)


def test_derived_rows_with_parts_unite_and_part_again() -> None:
    def ports(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Ports("x", (pod.port,))

    def flow(facts: Facts, found: Ports) -> Iterator[Any]:
        yield Flow("x", tuple(f"output:{port}" for port in found.parts))

    engine = engine_of(Unit(Pod, ports, (Ports,)), Unit(Ports, flow))
    for name, port in (("a", 2), ("b", 1), ("c", 1)):
        engine.facts.put(Pod(name, port))
    assert engine.plan().put == [Flow("x", ("output:1", "output:2"))]
    engine.facts.drop(Pod, "b")
    assert engine.plan() == Plan([], [], [])
    engine.facts.drop(Pod, "c")
    assert engine.plan().put == [Flow("x", ("output:2",))]
    engine.facts.drop(Pod, "a")
    engine.plan()
    assert engine.empty


def test_one_job_may_yield_the_parts_of_one_key_one_by_one() -> None:
    def conjunctions(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow("shared", ("conj(2)",))
        yield Flow("shared", ("conj(1)",))
        yield Flow("shared", ("conj(2)",))

    engine = engine_of(Unit(Pod, conjunctions))
    engine.facts.put(Pod("a"))
    assert engine.plan().put == [Flow("shared", ("conj(1)", "conj(2)"))]


def test_one_job_that_contradicts_itself_fails_alone() -> None:
    def two(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow("x", ("output:1",))
        yield Flow("x", ("output:2",))

    engine = engine_of(Unit(Pod, two), Unit(Pod, one_flow))
    engine.facts.put(Pod("a", 1, ("y",)))
    assert engine.plan().put == [Flow("y", ("output:1",))]
    assert engine.errors.counts == {f"unit {Unit(Pod, two).name}": 1}


def test_a_clash_keeps_the_applied_value_and_is_counted_and_shown_until_it_is_over() -> None:
    engine = engine_of(Unit(Pod, one_flow))
    engine.facts.put(Pod("a", 1, ("x",)))
    engine.plan()
    engine.facts.put(Pod("b", 2, ("x",)))
    engine.facts.put(Pod("c", 3, ("y",)))
    assert engine.plan() == Plan([Flow("y", ("output:3",))], [], [])
    assert engine.errors.counts == {"clash Flow": 1}
    assert engine.errors.standing == {(Flow, "x"): "Clash: 2 values for Flow 'x'"}
    assert engine.standing() == {(Flow, "x"): Flow("x", ("output:1",)), (Flow, "y"): Flow("y", ("output:3",))}
    engine.facts.drop(Pod, "a")
    assert engine.plan() == Plan([Flow("x", ("output:2",))], [], [])
    assert engine.errors.standing == {}


def test_entries_that_differ_beside_their_parts_clash() -> None:
    def conjunction(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow("shared", (f"conj({pod.port})",), timeout=pod.port)

    engine = engine_of(Unit(Pod, conjunction))
    engine.facts.put(Pod("a", 1))
    engine.facts.put(Pod("b", 2))
    assert engine.plan() == Plan([Flow("shared", ("conj(1)",), timeout=1)], [], [])
    assert engine.errors.counts == {"clash Flow": 1}


class Group(Fact, frozen=True):
    """Derived: its values of one name differ in their parts alone."""

    parts_only: ClassVar[bool] = True
    name: str
    label: str
    parts: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.name

    def with_parts(self, parts: tuple[str, ...]) -> Group:
        return Group(self.name, self.label, parts)


def test_rows_that_should_differ_in_their_parts_alone_and_do_not_clash() -> None:
    """Whoever came later does not change what the row means for the others, and has its turn once they are gone."""

    def group(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Group("g", pod.labels[0], (pod.name,))

    engine = engine_of(
        Unit(Pod, group, (Group,)),
        Unit(Group, lambda facts, found: [Flow(found.label, (",".join(found.parts),))]),
    )
    for name, label in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "y")):
        engine.facts.put(Pod(name, 1, (label,)))
    assert engine.plan().put == [Flow("x", ("a,c",))]
    assert engine.errors.standing == {(Group, "g"): "Clash: 3 values for Group 'g'"}
    engine.facts.drop(Pod, "a")
    assert engine.plan().put == [Flow("x", ("c",))]
    engine.facts.put(Pod("d", 1, ("x",)))
    assert engine.plan().put == [Flow("x", ("c,d",))]
    engine.facts.put(Pod("d", 1, ("y",)))
    engine.facts.drop(Pod, "c")
    assert engine.plan() == Plan([Flow("y", ("b,d",))], [Flow("x", ("c,d",))], [])
    assert engine.errors.standing == {}
    for name in "bd":
        engine.facts.drop(Pod, name)
    engine.plan()
    assert engine.empty


def test_a_clash_names_the_key_and_counts_the_values() -> None:
    clash = Clash((Flow, "x"), 2)
    assert (clash.ref, clash.values, str(clash)) == ((Flow, "x"), 2, "2 values for Flow 'x'")


def breaking(when: Callable[[Pod], bool]) -> Callable[[Facts, Pod], Iterator[Any]]:
    def sometimes(facts: Facts, pod: Pod) -> Iterator[Any]:
        yield Flow(pod.name, (f"output:{pod.port}",))
        if when(pod):
            raise ZeroDivisionError("bug")
        yield Route(pod.name)

    return sometimes


def test_an_exception_in_a_unit_keeps_its_old_entries_and_loses_nothing_else() -> None:
    unit = Unit(Pod, breaking(lambda pod: pod.port == 13))
    engine = engine_of(unit)
    engine.facts.put(Pod("a", 1))
    engine.facts.put(Pod("b", 1))
    engine.plan()
    engine.facts.put(Pod("a", 13))
    engine.facts.put(Pod("b", 2))
    assert engine.plan() == Plan([Flow("b", ("output:2",))], [], [])
    assert engine.errors.counts == {f"unit {unit.name}": 1}
    assert engine.errors.standing == {(unit.name, "a"): "ZeroDivisionError: bug"}
    engine.facts.put(Pod("a", 3))
    assert engine.plan() == Plan([Flow("a", ("output:3",))], [], [])
    assert engine.errors.standing == {}


def test_a_failed_job_runs_again_in_the_next_step_even_if_nothing_changed() -> None:
    broken = [True]
    engine = engine_of(Unit(Pod, breaking(lambda pod: broken[0])))
    engine.facts.put(Pod("a", 1))
    assert engine.plan() == Plan([], [], [])
    broken[0] = False
    assert engine.plan().put == [Flow("a", ("output:1",)), Route("a")]


def test_a_failed_job_whose_row_goes_leaves_nothing() -> None:
    engine = engine_of(Unit(Pod, breaking(lambda pod: True)))
    engine.facts.put(Pod("a", 1))
    engine.plan()
    engine.facts.drop(Pod, "a")
    engine.plan()
    assert (engine.empty, engine.errors.standing) == (True, {})


def test_an_index_that_raises_leaves_the_row_as_it_was_and_is_shown() -> None:
    class Odd(Pod, frozen=True):
        indexes = {"inverse": lambda odd: (1 // odd.port,)}  # noqa: RUF012

    engine = engine_of(Unit(Odd, lambda facts, odd: [Route(str(odd.port))]))
    engine.facts.put(Odd("a", 1))
    engine.plan()
    engine.facts.put(Odd("a", 0))
    assert engine.plan() == Plan([], [], [])
    assert engine.errors.counts == {"index Odd": 1}
    assert engine.facts.get(Odd, "a") == Odd("a", 1)
    engine.facts.put(Odd("a", 2))
    assert (engine.plan().put, engine.errors.standing) == ([Route("2")], {})


def test_a_status_that_is_withdrawn_is_forgotten_and_never_erased() -> None:
    engine = engine_of(Unit(Pod, lambda facts, pod: [Status(pod.name, str(pod.port))]))
    engine.facts.put(Pod("a", 1))
    assert engine.plan().put == [Status("a", "1")]
    engine.facts.drop(Pod, "a")
    assert engine.plan() == Plan([], [], [])
    assert engine.empty
    engine.facts.put(Pod("a", 1))
    assert engine.plan().put == [Status("a", "1")]


def announce(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Announce(pod.labels[0], pod.port, port=len(pod.labels))


def test_an_act_is_done_once_when_its_cause_appears() -> None:
    engine = engine_of(Unit(Pod, announce))
    engine.facts.put(Pod("a", 1, ("ip",)))
    assert engine.plan().acts == [Announce("ip", 1, port=1)]
    engine.facts.put(Pod("a", 1, ("ip", "more")))
    assert engine.plan().acts == []
    engine.facts.put(Pod("a", 2, ("ip",)))
    assert engine.plan().acts == [Announce("ip", 2, port=1)]


def test_a_cause_that_another_job_takes_over_in_the_same_pass_is_not_new() -> None:
    engine = engine_of(Unit(Pod, announce))
    engine.facts.put(Pod("a", 1, ("ip",)))
    engine.plan()
    engine.facts.drop(Pod, "a")
    engine.facts.put(Pod("b", 1, ("ip",)))
    assert engine.plan().acts == []
    engine.facts.drop(Pod, "b")
    assert engine.plan().acts == []
    assert engine.empty
    engine.facts.put(Pod("a", 1, ("ip",)))
    assert engine.plan().acts == [Announce("ip", 1, port=1)]


def test_derived_rows_reach_their_readers_in_the_same_pass_and_equal_ones_stop_there() -> None:
    runs: list[str] = []

    def counted(facts: Facts, member: Member) -> Iterator[Any]:
        runs.append(member.key)
        yield Flow(member.key)

    engine = engine_of(Unit(Member, counted), UNITS[2])
    engine.facts.put(Policy("n", "a"))
    engine.facts.put(Pod("p", 1, ("a",)))
    engine.facts.put(Pod("q", 1, ("a",)))
    assert [entry.key for entry in engine.plan().put] == [1, "n/p", "n/q"]
    runs.clear()
    engine.facts.put(Pod("p", 2, ("a",)))
    engine.plan()
    assert runs == ["n/p"]
    runs.clear()
    engine.facts.put(Policy("n", "a", verdict="deny"))
    engine.plan()
    assert runs == []


def test_a_unit_that_reads_a_derived_kind_runs_once_after_its_makers() -> None:
    runs: list[int] = []

    def reader(facts: Facts, pod: Pod) -> Iterator[Any]:
        found = facts.by(Member, "pod", pod.name)
        runs.append(len(found))
        yield Status(pod.name, str(len(found)))

    engine = engine_of(Unit(Pod, reader), UNITS[2])
    engine.facts.put(Pod("other", 1, ()))
    engine.plan()
    runs.clear()
    engine.facts.put(Policy("n", "a"))
    engine.facts.put(Pod("p", 1, ("a",)))
    engine.plan()
    assert runs == [1]


def test_a_held_job_that_is_released_while_it_waits_for_an_urgent_pass_still_runs_in_that() -> None:
    engine = engine_of(Unit(Pod, lambda facts, pod: [Flow(pod.name, (facts.get(Setting, "self").tunnel,))]))
    engine.facts.put(Setting("geneve"))
    engine.facts.put(Pod("a"))
    (flow,) = engine.plan().put
    engine._ledger.refuse(
        engine.facts.table(Flow).cell("a"), flow, Refused([flow], "no"), lambda tries, nth: 0.0
    )
    engine.facts.put(Setting("vxlan"), urgent=True)
    engine.plan()
    assert list(engine.standing().values()) == [Flow("a", ("vxlan",))]


def test_when_the_first_job_shows_what_its_unit_reads_the_others_wait_for_the_makers_of_that() -> None:
    runs: list[str] = []

    def reader(facts: Facts, pod: Pod) -> Iterator[Any]:
        runs.append(pod.name)
        yield Status(pod.name, str(len(facts.by(Member, "pod", pod.name))))

    engine = engine_of(Unit(Pod, reader), UNITS[2])
    for name in "abc":
        engine.facts.put(Pod(name, 1, ("x",)))
    engine.facts.put(Policy("n", "x"))
    engine.plan()
    assert sorted(runs) == ["a", "a", "b", "c"]
    assert {entry.text for entry in engine.standing().values() if isinstance(entry, Status)} == {"1"}


def test_a_unit_over_what_rows_share_runs_when_the_first_comes_and_the_last_has_gone() -> None:
    seen: list[str] = []

    def shared(facts: Facts, label: str) -> Iterator[Any]:
        seen.append(label)
        yield Flow(label)

    engine = engine_of(Unit(Pod, shared, by="label"))
    for pod in (Pod("a", 1, ("x", "y")), Pod("b", 1, ("y",)), Pod("a", 2, ("x", "y"))):
        engine.facts.put(pod)
        engine.plan()
    engine.facts.drop(Pod, "b")
    assert engine.plan().drop == []
    assert (sorted(seen), list(engine.standing().values())) == (["x", "y"], [Flow("x"), Flow("y")])
    engine.facts.put(Pod("a", 2, ("x",)))
    assert engine.plan().drop == [Flow("y")]
    engine.facts.drop(Pod, "a")
    assert engine.plan().drop == [Flow("x")]
    assert (engine.empty, sorted(seen)) == (True, ["x", "y"])


def test_a_unit_over_the_values_of_no_index_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"one_flow\(Pod by nothing\) is over nothing, which is not an index of Pod"
    ):
        engine_of(Unit(Pod, one_flow, by="nothing"))


def test_units_in_a_circle_are_refused_at_construction() -> None:
    with pytest.raises(ValueError, match=r"units run in a circle: engine_world.members\(Policy\) -> "):
        engine_of(Unit(Policy, UNITS[2].entries, (Member,)), Unit(Member, one_flow, (Policy,)))


def test_a_unit_listed_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one_flow\(Pod\) is listed twice"):
        engine_of(Unit(Pod, one_flow), Unit(Pod, one_flow))


def test_a_circle_that_shows_only_in_reads_fails_that_job() -> None:
    def first(facts: Facts, pod: Pod) -> Iterator[Any]:
        for _ in facts.all(Policy):
            yield Member(pod.name, pod.name, 0, 0)

    def second(facts: Facts, setting: Setting) -> Iterator[Any]:
        for member in facts.all(Member):
            yield Policy(member.policy, "x")

    engine = engine_of(Unit(Pod, first, (Member,)), Unit(Setting, second, (Policy,)))
    engine.facts.put(Pod("p"))
    engine.facts.put(Setting())
    engine.plan()
    assert sum(engine.errors.counts.values()) == 1
    assert "units run in a circle" in next(iter(engine.errors.standing.values()))


def test_a_derived_row_that_was_not_declared_fails_the_job() -> None:
    unit = Unit(Pod, lambda facts, pod: [Member("n", pod.name, 0, 0)])
    engine = engine_of(unit)
    engine.facts.put(Pod("p"))
    engine.plan()
    assert "does not declare that it yields Member" in engine.errors.standing[unit.name, "p"]


def test_feeds_may_not_write_derived_kinds_and_units_may_not_write_at_all() -> None:
    def writer(facts: Facts, pod: Pod) -> Iterator[Any]:
        facts.put(Setting())
        yield Route(pod.name)

    unit = Unit(Pod, writer)
    engine = engine_of(unit, UNITS[2])
    with pytest.raises(TypeError, match="Member is derived by units"):
        engine.facts.put(Member("n", "p", 0, 0))
    engine.facts.put(Pod("p"))
    engine.plan()
    assert f"unit {unit.name} wrote a Setting" in engine.errors.standing[unit.name, "p"]


def test_whole_kind_reads_wake_and_an_unknown_index_is_an_error() -> None:
    def census(facts: Facts, setting: Setting) -> Iterator[Any]:
        yield Status("pods", ",".join(pod.name for pod in facts.all(Pod)))

    unknown = Unit(Policy, lambda facts, n: facts.by(Pod, "colour", "red"))
    engine = engine_of(Unit(Setting, census), unknown)
    engine.facts.put(Setting())
    engine.facts.put(Pod("b"))
    engine.facts.put(Pod("a"))
    assert engine.plan().put == [Status("pods", "a,b")]
    engine.facts.drop(Pod, "b")
    assert engine.plan().put == [Status("pods", "a")]
    engine.facts.put(Policy("n", "x"))
    engine.plan()
    assert engine.errors.standing == {(unknown.name, "n"): "LookupError: Pod has no index 'colour'"}


def test_the_fault_wrapper_of_this_suite_changes_nothing_when_there_is_no_fault() -> None:
    plain, wrapped = engine_of(*UNITS), engine_of(*faulty(UNITS, lambda: None))
    for engine in (plain, wrapped):
        engine.facts.put(Pod("p", 1, ("a",)))
        engine.facts.put(Policy("n", "a"))
    assert plain.plan() == wrapped.plan()


def test_an_act_without_any_data_is_an_act() -> None:
    engine = engine_of(Unit(Pod, lambda facts, pod: [Act("k", "c")]))
    engine.facts.put(Pod("p"))
    assert engine.plan().acts == [Act("k", "c")]
