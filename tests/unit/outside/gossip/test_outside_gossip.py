"""Membership in virtual time: who is found alive and dead, how soon, and who may act for all."""

# ruff: noqa: B023 (what is waited for is asked within the loop's turn)

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import pytest
from gossip_world import World, acting, overlap, owners
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antrea.outside.gossip.message import Gossip, Standing, Update
from antrea.outside.gossip.quorum import is_majority

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.untraced

FIVE = [f"node-{number}" for number in range(1, 6)]
FOUND = 2.75
"""Seconds within which all know of a death, without loss, of four members or more. docs/membership.md"""
FOUND_BY_FEW = 4.25
"""With fewer members, or 5 % loss."""
MANY_DEATHS = 12.0
"""Of any number at once, among up to 20 members."""
TOGETHER = 3.0
"""From when the network is whole again until all agree."""


def whole(count: int = 5, seed: int = 1) -> World:
    """A network in which all know each other and the majority counts."""
    world = World([f"node-{number}" for number in range(1, count + 1)], seed)
    world.until(lambda: world.agree(*world.names), within=10)
    world.run(2)
    return world


def died(world: World, since: int) -> set[str]:
    return {whom for _, _, whom, alive in world.events[since:] if not alive}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 20])
def test_gossip_members_that_start_together_find_each_other(count: int) -> None:
    world = whole(count)
    assert acting(world) == set(world.names)
    assert died(world, 0) == set()


@pytest.mark.parametrize("count", [4, 5, 9, 20])
def test_gossip_a_dead_member_is_found_by_all_within_the_bound(count: int) -> None:
    taken = []
    for seed in range(3):
        world = whole(count, seed)
        gone = world.random.choice(world.names)
        rest = [name for name in world.names if name != gone]
        since = len(world.events)
        world.kill(gone)
        taken.append(world.until(lambda: world.agree(*rest), within=FOUND))
        assert died(world, since) == {gone}
    assert max(taken) > 1.25, "dead before it had time to refute"


@pytest.mark.parametrize(("count", "loss"), [(2, 0.0), (3, 0.0), (2, 0.05), (3, 0.05), (5, 0.05), (20, 0.05)])
def test_gossip_a_dead_member_is_found_by_few_or_with_loss(count: int, loss: float) -> None:
    for seed in range(3):
        world = whole(count, seed)
        world.loss = loss
        gone, *rest = world.names
        world.kill(gone)
        world.until(lambda: world.agree(*rest), within=FOUND_BY_FEW)


@settings(max_examples=8, deadline=None)
@given(st.integers(5, 12), st.sets(st.integers(1, 12), min_size=1))
def test_gossip_any_number_of_deaths_at_once_is_found(count: int, numbers: set[int]) -> None:
    world = whole(count)
    gone = [name for name in world.names[1:] if int(name.removeprefix("node-")) in numbers]
    for name in gone:
        world.kill(name)
    rest = [name for name in world.names if name not in gone]
    world.until(lambda: world.agree(*rest), within=MANY_DEATHS)
    world.run(2)
    assert acting(world) == (set(rest) if is_majority(rest, world.names) else set())


@pytest.mark.parametrize(("count", "minutes"), [(2, 3), (3, 2), (5, 2)])
def test_gossip_loses_nobody_at_5_percent_loss(count: int, minutes: int) -> None:
    world = whole(count)
    world.loss = 0.05
    since = len(world.events)
    lost_majority = 0
    for _ in range(minutes * 60):
        world.run(1)
        lost_majority += acting(world) != set(world.names)
    assert world.events[since:] == []
    assert lost_majority == 0


def test_gossip_loses_nobody_when_all_packets_are_lost_for_half_a_second_now_and_then() -> None:
    world = whole(5)
    since = len(world.events)
    for _ in range(20):
        world.run(4.5)
        world.loss = 1.0
        world.run(0.5)
        world.loss = 0.02
    assert world.events[since:] == []


def test_gossip_loses_nobody_whose_link_to_one_other_is_cut() -> None:
    world = whole(5)
    since = len(world.events)
    world.is_cut = lambda one, other: {one, other} == {"node-1", "node-2"}
    world.run(60)
    assert world.events[since:] == []
    assert acting(world) == set(FIVE)


def test_gossip_loses_nobody_who_can_only_be_reached_over_tcp() -> None:
    world = World(FIVE, udp_blocked={"node-3"})
    world.until(lambda: world.agree(*FIVE), within=10)
    since = len(world.events)
    world.run(60)
    assert world.events[since:] == []


@pytest.mark.parametrize("count", [3, 5, 9])
def test_gossip_a_member_that_is_cut_off_gives_up_before_anybody_takes_it_for_dead(count: int) -> None:
    for seed in range(4):
        world = whole(count, seed)
        gone = world.random.choice(world.names)
        since = len(world.events)
        world.part([gone], [name for name in world.names if name != gone])
        gave_up = world.until(lambda: gone not in acting(world), within=2)
        began = world.now - gave_up
        world.run(5)
        found = min(when for when, _, whom, alive in world.events[since:] if whom == gone and not alive)
        assert gave_up < found - began


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 4), min_size=5, max_size=5), st.floats(0.2, 12)),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 1000),
)
@example([([4, 0, 2, 4, 1], 6.3), ([4, 4, 2, 3, 2], 7.1), ([1, 4, 3, 2, 3], 10.3)], 547)
def test_gossip_an_address_has_one_owner_in_a_majority_and_none_in_a_minority(
    partitions: Sequence[tuple[Sequence[int], float]], seed: int
) -> None:
    world = whole(5, seed)
    for shape, seconds in partitions:
        world.part(*([name for name, side in zip(FIVE, shape, strict=True) if side == at] for at in range(5)))
        world.run(seconds)
    world.run(MANY_DEATHS)
    sides = [
        {name for name, side in zip(FIVE, partitions[-1][0], strict=True) if side == at} for at in range(5)
    ]
    greater = [side for side in sides if is_majority(side, FIVE)]
    assert acting(world) == (greater[0] if greater else set())
    assert len(owners(world)) == len(greater)
    since = len(world.events)
    world.part(FIVE)
    world.until(lambda: world.agree(*FIVE), within=TOGETHER)
    world.run(TOGETHER)
    assert died(world, since) == set()
    world.run(2)
    assert acting(world) == set(FIVE)
    assert len(owners(world)) == 1


@pytest.mark.parametrize(("count", "least"), [(5, 2), (9, 4)])
def test_gossip_a_minority_gives_up_before_the_majority_takes_over(count: int, least: int) -> None:
    """What it told to those that are cut off counted as told, so that its members did not hear it from each other."""
    names = [f"node-{number}" for number in range(1, count + 1)]
    for seed, minority in enumerate(list(combinations(names, least))[:10], start=20):
        world = whole(count, seed)
        rest = [name for name in names if name not in minority]
        world.part(minority, rest)
        assert overlap(world, rest, 4) < -0.2
        assert acting(world) == set(rest)


def test_gossip_what_was_told_to_suspects_alone_is_told_on() -> None:
    swim = whole(5).machines["node-1"].swim
    suspects = tuple(Update(name, 0, Standing.SUSPECT, "node-5") for name in FIVE[1:4])
    swim.received(0, "node-5", Gossip(0, suspects))
    for name in FIVE[1:4] * 4:
        swim._updates_for(name)
    assert set(suspects) <= set(swim._updates_for("node-5"))


def test_gossip_a_death_of_which_there_was_no_doubt_is_believed_if_the_dead_does_not_answer() -> None:
    world = whole(5)
    since = len(world.events)
    death = Gossip(0, (Update("node-2", 0, Standing.DEAD, "node-5"),))
    world.machines["node-1"].swim.received(world.now, "node-5", death)
    world.run(5)
    assert died(world, since) == set()
    assert world.machines["node-1"].swim.rows["node-2"].incarnation == 1
    world.kill("node-2")
    death = Gossip(0, (Update("node-2", 1, Standing.DEAD, "node-5"),))
    world.machines["node-1"].swim.received(world.now, "node-5", death)
    assert world.until(lambda: "node-2" not in world.view("node-1"), within=0.4) > 0.29


def test_gossip_a_doubt_that_is_as_old_as_the_death_makes_it_no_surer() -> None:
    """Both came late, over TCP, after parts had found together."""
    world = whole(5)
    since = len(world.events)
    doubt, death = (Update("node-2", 0, standing, "node-5") for standing in (Standing.SUSPECT, Standing.DEAD))
    for update in (doubt, death):
        world.machines["node-1"].swim.received(world.now, "node-5", Gossip(0, (update,)))
    world.run(5)
    assert died(world, since) == set()


def test_gossip_of_two_halves_exactly_one_is_the_majority() -> None:
    world = whole(4)
    world.part(["node-1", "node-4"], ["node-2", "node-3"])
    world.run(8)
    assert acting(world) == {"node-1", "node-4"}
    assert [is_majority(some, "abcd") for some in ("ab", "cd", "abc", "a")] == [True, False, True, False]


def test_gossip_a_member_that_was_paused_blames_nobody_and_acts_no_longer() -> None:
    world = whole(5)
    world.pause("node-2")
    others = [name for name in FIVE if name != "node-2"]
    world.run(10)
    assert all(world.view(name) == set(others) for name in others)
    since = len(world.events)
    world.resume("node-2")
    world.run(0.06)
    assert "node-2" not in acting(world)
    world.until(lambda: world.agree(*FIVE), within=TOGETHER)
    world.until(lambda: acting(world) == set(FIVE), within=3)
    assert died(world, since) == set()


def test_gossip_a_short_pause_is_no_death() -> None:
    world = whole(5)
    since = len(world.events)
    for _ in range(8):
        world.pause("node-4")
        world.run(0.9)
        world.resume("node-4")
        world.run(5)
    assert world.events[since:] == []


def test_gossip_a_restart_that_is_quick_is_not_noticed_and_a_slow_one_is_healed() -> None:
    world = whole(5)
    since = len(world.events)
    for _ in range(5):
        world.kill("node-3")
        world.run(0.5)
        world.start("node-3")
        world.run(5)
    assert [event for event in world.events[since:] if event[1] != "node-3"] == []
    world.kill("node-3")
    world.run(20)
    world.start("node-3")
    world.until(lambda: world.agree(*FIVE), within=TOGETHER)


def test_gossip_a_member_that_leaves_is_gone_at_once() -> None:
    world = whole(5)
    world.machines["node-5"].leave(world.now)
    world.run(0.1)
    rest = FIVE[:4]
    world.until(lambda: world.agree(*rest), within=0.6)
    world.run(30)
    assert world.agree(*rest)
    world.kill("node-5")
    world.start("node-5")
    world.until(lambda: world.agree(*FIVE), within=TOGETHER)


def test_gossip_a_member_whom_a_refutation_passed_by_asks_itself_before_it_takes_anybody_for_dead() -> None:
    for seed in range(3):
        world = whole(20, seed)
        accused, *others = world.names
        late = next(name for name in others if accused not in world.machines[name].swim._targets())
        for name, machine in world.machines.items():
            if name == accused:
                machine.swim.incarnation = 1
            elif name != late:
                machine.swim.rows[accused].incarnation = 1
        said = tuple(Update(accused, 0, Standing.SUSPECT, name) for name in others if name != late)[:3]
        since = len(world.events)
        world.machines[late].swim.received(world.now, said[0].witness, Gossip(0, said))
        world.run(5)
        assert world.events[since:] == []
        assert world.machines[late].swim.rows[accused].incarnation == 1


def test_gossip_a_node_that_kubernetes_lists_no_longer_is_forgotten() -> None:
    world = whole(5)
    rest = FIVE[:4]
    for name in rest:
        world.machines[name].peers(rest)
    world.run(20)
    assert world.agree(*rest)
    for name in rest:
        machine = world.machines[name]
        assert "node-5" not in machine.swim.rows
        assert "node-5" not in str(vars(machine.channels))
    for name in rest:
        world.machines[name].peers(FIVE)
    world.until(lambda: world.agree(*FIVE), within=TOGETHER)


def test_gossip_the_observed_are_a_ring_in_which_everybody_is_observed_thrice() -> None:
    world = whole(20)
    observed = [name for machine in world.machines.values() for name in machine.swim._targets()]
    assert {name: observed.count(name) for name in world.names} == dict.fromkeys(world.names, 3)


def test_gossip_packets_stay_below_the_least_mtu_of_ipv6() -> None:
    names = [f"{number:03}-{'x' * 249}" for number in range(24)]
    world = World(names)
    world.until(lambda: world.agree(*names), within=20)
    for name in names[:9]:
        world.kill(name)
    world.run(4)
    assert 1000 < world.longest <= 1280 - 40 - 8


def test_gossip_the_load_of_a_member_does_not_grow_with_their_number() -> None:
    loads = []
    for count in (8, 32):
        world = whole(count)
        before = world.sent
        world.run(5)
        loads.append((world.sent - before) / 5 / count)
    small, large = loads
    assert large < 1.3 * small
    assert large < 25, "packets a second"


def test_gossip_what_was_told_long_enough_is_told_no_more() -> None:
    world = whole(5)
    world.run(5)
    assert [bool(machine.swim._updates) for machine in world.machines.values()] == [False] * 5


def test_gossip_incarnations_only_grow() -> None:
    world = whole(5)
    world.loss = 0.3
    seen: list[int] = []
    for _ in range(30):
        world.run(1)
        seen.append(world.machines["node-1"].swim.incarnation)
    assert all(one <= other for one, other in pairwise(seen))
    assert seen[-1] > 0
