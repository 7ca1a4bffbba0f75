"""Membership by gossip and BFD together, in virtual time: every line of the table of antrea/outside/gossip/bfd_view.py."""

from __future__ import annotations

from itertools import combinations

import pytest
from gossip_world import NOTICED, World, acting, overlap
from hypothesis import given, settings
from hypothesis import strategies as st

from antrea.outside.gossip.message import Gossip, Standing, Update

pytestmark = pytest.mark.untraced

GONE = 1.0
"""Seconds from a power-off until all know, of three Nodes or more."""

HUNG = 8.0
"""Seconds from the moment an agent hangs until all know, though its switch is up."""


def whole(count: int, seed: int = 1) -> World:
    """All know each other, the majority counts, and all switches see each other."""
    world = World([f"node-{number}" for number in range(1, count + 1)], seed)
    world.until(lambda: world.agree(*world.names), within=10)
    for name in world.names:
        world.see(name, True)
    world.run(3)
    assert counted(world, *world.names)
    return world


def counts(world: World, one: str, other: str) -> bool:
    """Whether `other` counts for `one`, by what it told its agent last."""
    told = [alive for _, who, whom, alive in world.events if (who, whom) == (one, other)]
    return bool(told) and told[-1]


def counted(world: World, *names: str) -> bool:
    """Whether exactly these count, for each of them."""
    return all(
        counts(world, one, other) == (other in names)
        for one in names
        for other in world.names
        if other != one
    )


def rolled(world: World, name: str, *, switch: bool = True) -> None:
    """Its Pod was exchanged within 20 s; `switch`: others see that."""
    world.roll(name)
    if switch:
        world.see(name, False, within=NOTICED)
    world.run(20)
    world.start(name)
    world.run(5)
    if switch:
        world.see(name, True, within=(0.0, 1.0))
    world.run(5)


def changes(world: World, since: int) -> list[tuple[str, str, bool]]:
    return [(who, whom, alive) for _, who, whom, alive in world.events[since:]]


def acts(world: World, name: str) -> bool:
    return world.machines[name].swim.census[0]


@pytest.mark.parametrize(("count", "loss"), [(3, 0.0), (4, 0.0), (9, 0.0), (3, 0.05), (9, 0.05)])
def test_gossip_a_node_without_power_is_dead_for_all_within_a_second(count: int, loss: float) -> None:
    for seed in range(2):
        world = whole(count, seed)
        world.loss = loss
        gone, *rest = world.names
        world.kill(gone)
        world.see(gone, False, within=NOTICED)
        world.until(lambda rest=rest, world=world: counted(world, *rest), within=GONE)  # type: ignore[misc]
        assert all(acts(world, name) for name in rest)


def test_gossip_an_agent_that_restarts_is_waited_for_as_long_as_its_switch_is_seen() -> None:
    world = whole(5)
    since = len(world.events)
    world.crash("node-3")
    world.run(50)
    assert changes(world, since) == []
    assert all(acts(world, name) for name in world.names if name != "node-3")
    world.start("node-3")
    world.run(5)
    assert [one for one in changes(world, since) if one[0] != "node-3"] == []

    world.crash("node-3")
    world.run(55)
    assert [one for one in changes(world, since) if one[0] != "node-3"] == []
    rest = [name for name in world.names if name != "node-3"]
    world.until(lambda: counted(world, *rest), within=15)


@pytest.mark.parametrize(("count", "loss"), [(2, 0.0), (3, 0.0), (5, 0.0), (3, 0.05), (9, 0.05)])
def test_gossip_an_agent_that_hangs_behind_a_switch_that_is_up_is_dead_within_seconds(
    count: int, loss: float
) -> None:
    for seed in range(2):
        world = whole(count, seed)
        world.loss = loss
        hangs = world.names[-1]
        rest = world.names[:-1]
        since = len(world.events)
        world.pause(hangs)
        world.run(5.9)
        assert changes(world, since) == []
        world.until(lambda rest=rest, world=world: counted(world, *rest), within=HUNG - 5.9)  # type: ignore[misc]
        assert all(acts(world, name) for name in rest)
        world.run(90)
        assert counted(world, *rest)
        world.resume(hangs)
        world.run(0.05)
        assert not acts(world, hangs)
        world.until(lambda world=world: counted(world, *world.names), within=3)  # type: ignore[misc]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.floats(0.1, 5.5), st.floats(1.0, 5.0)), max_size=8),
    st.sampled_from([0.0, 0.05]),
    st.integers(0, 99),
)
def test_gossip_agents_that_do_not_run_for_less_than_that_move_nothing(
    pauses: list[tuple[int, float, float]], loss: float, seed: int
) -> None:
    """A busy machine."""
    world = whole(5, seed)
    world.loss = loss
    since = len(world.events)
    for number, paused, runs in pauses:
        name = f"node-{number}"
        world.pause(name)
        world.run(paused)
        world.resume(name)
        world.run(runs)
    assert changes(world, since) == []


def test_gossip_an_agent_that_hangs_and_is_then_restarted_is_waited_for() -> None:
    """kubelet ends it by its liveness probe."""
    world = whole(5)
    since = len(world.events)
    world.pause("node-3")
    world.run(5)
    world.crash("node-3")
    world.run(40)
    assert changes(world, since) == []
    world.start("node-3")
    world.run(5)
    assert [one for one in changes(world, since) if one[0] != "node-3"] == []


def test_gossip_a_node_that_dies_while_its_agent_restarts_is_dead_at_once() -> None:
    world = whole(5)
    world.crash("node-3")
    world.run(10)
    world.kill("node-3")
    world.see("node-3", False, within=NOTICED)
    world.until(lambda: counted(world, "node-1", "node-2", "node-4", "node-5"), within=GONE)


def test_gossip_a_switch_that_restarts_fast_moves_nothing() -> None:
    world = whole(5)
    since = len(world.events)
    world.see("node-3", False, within=NOTICED)
    world.run(1.9)
    world.see("node-3", True, within=(0.0, 0.1))
    world.run(10)
    assert changes(world, since) == []


@pytest.mark.parametrize("count", [3, 5])
def test_gossip_a_node_whose_switch_stays_down_is_set_aside_and_knows_it_until_it_is_back(count: int) -> None:
    world = whole(count)
    rest = [name for name in world.names if name != "node-3"]
    world.see("node-3", False, within=NOTICED)
    for name in rest:
        world.see(name, False, "node-3", within=NOTICED)
    taken = world.until(lambda: counted(world, *rest), within=3)
    assert taken > 2
    world.until(lambda: not acts(world, "node-3"), within=0.5)
    assert all(acts(world, name) for name in rest)
    world.run(30)
    assert counted(world, *rest)
    world.see("node-3", True, within=(0.0, 1.0))
    for name in rest:
        world.see(name, True, "node-3", within=(0.0, 1.0))
    world.until(lambda: counted(world, *world.names), within=3)
    assert acts(world, "node-3")


@pytest.mark.parametrize("count", [3, 5])
def test_gossip_an_agent_that_comes_back_before_its_switch_is_seen_waits_for_that(count: int) -> None:
    world = whole(count)
    rest = [name for name in world.names if name != "node-3"]
    world.kill("node-3")
    world.see("node-3", False, within=NOTICED)
    world.until(lambda: counted(world, *rest), within=GONE)
    world.run(5)
    since = len(world.events)
    world.start("node-3")
    for _ in range(80):
        world.run(0.1)
        assert not acts(world, "node-3")
    assert [whom for _, whom, alive in changes(world, since) if whom == "node-3" and alive] == []
    world.see("node-3", True, within=(0.0, 0.1))
    world.until(
        lambda: acts(world, "node-3") and all(counts(world, name, "node-3") for name in rest), within=1
    )


@pytest.mark.parametrize(("count", "least"), [(2, 1), (3, 1), (5, 1), (5, 2), (9, 4)])
def test_gossip_a_minority_whose_switches_are_cut_off_gives_up_before_the_majority_takes_over(
    count: int, least: int
) -> None:
    names = [f"node-{number}" for number in range(1, count + 1)]
    # of two the first is the majority
    for seed, minority in enumerate(list(combinations(names[1:], least))[:8]):
        world = whole(count, seed)
        rest = [name for name in names if name not in minority]
        world.sever(minority, rest)
        # where BFD of both sides found the other silent at different times (docs/egress.md)
        assert overlap(world, rest, 2) < 0.06
        assert acting(world) == set(rest)


def test_gossip_members_that_answer_though_no_switch_sees_another_act_on() -> None:
    world = whole(5)
    for _ in range(20):
        for name in world.names:
            world.see(name, False, within=NOTICED)
        for _ in range(10):
            world.run(0.1)
            assert acting(world) == set(world.names)
        for name in world.names:
            world.see(name, True)
        world.run(1)


@pytest.mark.parametrize(("count", "loss"), [(2, 0.0), (3, 0.0), (5, 0.0), (3, 0.05), (9, 0.05)])
def test_gossip_a_pod_that_is_exchanged_moves_nothing_if_it_said_so(count: int, loss: float) -> None:
    for seed in range(2):
        world = whole(count, seed)
        world.loss = loss
        gone, *rest = world.names if seed else reversed(world.names)
        since = len(world.events)
        world.roll(gone)
        world.see(gone, False, within=NOTICED)
        for seconds in range(20):
            world.run(1)
            assert all(acts(world, name) for name in rest), seconds
        world.start(gone)
        world.run(8)
        assert all(acts(world, name) for name in world.names)
        world.see(gone, True, within=(0.0, 1.0))
        world.run(30)
        assert [one for one in changes(world, since) if one[0] != gone] == []
        assert [one for one in changes(world, since) if not one[2]] == []


def test_gossip_the_word_of_a_pod_that_is_exchanged_is_over_when_its_switch_is_back() -> None:
    world = whole(5)
    for _ in range(2):
        rolled(world, "node-3")
    world.kill("node-3")
    world.see("node-3", False, within=NOTICED)
    world.until(lambda: counted(world, "node-1", "node-2", "node-4", "node-5"), within=GONE)


def test_gossip_the_word_of_a_pod_that_is_exchanged_counts_once() -> None:
    world = whole(5)
    machine = world.machines["node-3"]
    rolled(world, "node-3")
    (word,) = (view for view in machine.swim.bfd.all if view.observer == view.node == "node-3")
    world.kill("node-3")
    for name in world.machines:
        world.machines[name].swim.received(world.now, "node-1", Gossip(0, (), (word,)))
    world.see("node-3", False, within=NOTICED)
    world.until(lambda: counted(world, "node-1", "node-2", "node-4", "node-5"), within=GONE)


def test_gossip_a_pod_that_does_not_come_back_as_it_said_is_waited_for_as_long_as_for_an_agent() -> None:
    world = whole(5)
    since = len(world.events)
    world.roll("node-3")
    world.see("node-3", False, within=NOTICED)
    world.run(55)
    assert changes(world, since) == []
    rest = [name for name in world.names if name != "node-3"]
    world.until(lambda: counted(world, *rest), within=7)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_gossip_a_node_that_loses_its_power_after_it_said_it_is_back_in_a_moment_is_dead_soon(
    count: int,
) -> None:
    for seconds in (0, 10):
        world = whole(count)
        world.roll("node-2")
        world.see("node-2", False, within=NOTICED)
        world.run(seconds)
        world.kill("node-2")
        rest = [name for name in world.names if name != "node-2"]
        world.until(lambda rest=rest, world=world: counted(world, *rest), within=4)  # type: ignore[misc]


def test_gossip_an_agent_that_is_back_as_it_said_without_its_switch_is_set_aside_in_the_end() -> None:
    world = whole(5)
    since = len(world.events)
    world.roll("node-3")
    world.see("node-3", False, within=NOTICED)
    world.run(10)
    world.start("node-3")
    world.run(45)
    assert [one for one in changes(world, since) if one[0] != "node-3"] == []
    assert acts(world, "node-3")
    rest = [name for name in world.names if name != "node-3"]
    world.until(lambda: counted(world, *rest) and not acts(world, "node-3"), within=10)


def test_gossip_pods_are_exchanged_without_any_session() -> None:
    """Its word is all that a member says then, and still has a greater number each time."""
    world = World([f"node-{number}" for number in range(1, 6)])
    world.run(5)
    since = len(world.events)
    for _ in range(2):
        rolled(world, "node-3", switch=False)
        world.run(45)
    assert [one for one in changes(world, since) if one[0] != "node-3"] == []


def test_gossip_who_does_not_know_the_word_and_takes_such_a_member_for_dead_convinces_nobody() -> None:
    """Members of a version before this word; and one whom it passed by."""
    world = whole(5)
    world.roll("node-3")
    world.see("node-3", False, within=NOTICED)
    world.run(1)
    since = len(world.events)
    for name in ("node-2", "node-4", "node-5"):
        said = Update("node-3", world.machines[name].swim.rows["node-3"].incarnation, Standing.DEAD, "node-1")
        world.machines[name].swim.received(world.now, "node-1", Gossip(0, (said,)))
    world.run(30)
    assert changes(world, since) == []


@pytest.mark.parametrize("says", [True, False])
def test_gossip_who_starts_meanwhile_knows_of_a_member_that_is_waited_for(says: bool) -> None:
    world = whole(5)
    if says:
        world.roll("node-3")
        world.see("node-3", False, within=NOTICED)
    else:
        world.crash("node-3")
    world.run(20)
    world.kill("node-1")
    world.start("node-1")
    for name in ("node-2", "node-4", "node-5"):
        world.see(name, True, "node-1", within=(2.0, 3.0))
    world.until(lambda: world.view("node-1") == set(world.names) and acts(world, "node-1"), within=3)
    since = len(world.events)
    world.run(20)
    assert changes(world, since) == []


def test_gossip_members_of_whom_one_is_back_in_a_moment_are_as_many_as_before() -> None:
    world = whole(3)
    world.roll("node-2")
    world.see("node-2", False, within=NOTICED)
    world.run(2)
    world.kill("node-3")
    world.see("node-3", False, "node-1", within=NOTICED)
    world.run(5)
    assert acts(world, "node-1")
    world.kill("node-2")
    world.until(lambda: not acts(world, "node-1"), within=4)


def test_gossip_who_was_paused_does_not_blame_such_a_member() -> None:
    world = whole(5)
    world.roll("node-3")
    world.see("node-3", False, within=NOTICED)
    world.run(2)
    since = len(world.events)
    world.pause("node-1")
    world.run(5)
    world.resume("node-1")
    world.run(20)
    assert [one for one in changes(world, since) if one[1] == "node-3"] == []


def test_gossip_one_observer_that_errs_changes_nothing() -> None:
    world = whole(5)
    since = len(world.events)
    world.see("node-3", False, "node-1")
    world.run(90)
    assert changes(world, since) == []


def test_gossip_one_observer_that_errs_beside_one_whose_session_comes_up_again_changes_nothing() -> None:
    """In bursts of loss one was most of those who had a word to say, and addresses moved there and back."""
    world = whole(3)
    since = len(world.events)
    world.see("node-3", None, "node-2", unsure=True)
    world.see("node-3", False, "node-1")
    world.run(30)
    assert changes(world, since) == []
    world.see("node-3", False, "node-2")
    world.until(lambda: counted(world, "node-1", "node-2"), within=3)


def test_gossip_a_node_that_dies_while_one_observer_is_unsure_is_dead_by_gossip() -> None:
    world = whole(3)
    world.see("node-3", None, "node-2", unsure=True)
    world.run(1)
    world.kill("node-3")
    world.see("node-3", False, "node-1", within=NOTICED)
    world.until(lambda: counted(world, "node-1", "node-2"), within=4.25)


@pytest.mark.parametrize("count", [2, 5])
def test_gossip_tunnels_that_are_blocked_everywhere_set_nobody_aside(count: int) -> None:
    world = whole(count)
    since = len(world.events)
    for name in world.names:
        world.see(name, False, within=NOTICED)
    world.run(30)
    assert changes(world, since) == []
    assert all(acts(world, name) for name in world.names)


def test_gossip_without_any_session_gossip_alone_decides() -> None:
    world = whole(5)
    for name in world.names:
        world.see(name, None)
    world.run(1)
    world.kill("node-3")
    taken = world.until(lambda: counted(world, "node-1", "node-2", "node-4", "node-5"), within=2.75)
    assert taken > GONE


def test_gossip_a_view_is_told_to_all_at_once() -> None:
    world = whole(20)
    machine = world.machines["node-1"]
    machine.pop_output()
    machine.report_bfd(world.now, "node-2", False)
    assert {packet.to for packet in machine.pop_output()[0]} == set(world.names) - {"node-1"}


def test_gossip_views_of_an_earlier_life_are_overridden() -> None:
    world = whole(3)
    world.see("node-3", False, "node-1")
    world.run(1)
    world.kill("node-1")
    world.start("node-1")
    world.run(3)
    views = {
        view.observer: view.up for view in world.machines["node-2"].swim.bfd.all if view.node == "node-3"
    }
    assert views == {"node-1": None, "node-2": True}


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["up", "down", "none", "restart"]), st.integers(0, 3), st.integers(0, 3)),
        max_size=12,
    ),
    st.integers(0, 99),
)
def test_gossip_all_come_to_hold_the_same_views(steps: list[tuple[str, int, int]], seed: int) -> None:
    world = whole(4, seed)
    for what, one, other in steps:
        observer, node = world.names[one], world.names[other]
        if what == "restart":
            world.kill(observer)
            world.start(observer)
        elif one != other:
            world.see(node, {"up": True, "down": False, "none": None}[what], observer)
        world.run(0.3)
    world.run(40)
    assert len({frozenset(machine.swim.bfd.all) for machine in world.machines.values()}) == 1
    verdicts = {
        name: {one for one in world.names if one in world.machines[name].swim.bfd.aside}
        for name in world.names
    }
    assert len({frozenset(one) for one in verdicts.values()}) == 1
