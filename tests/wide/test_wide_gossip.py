"""Half hours of membership in virtual time: nobody is lost while packets are, at random and in bursts; and all ways to part five."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bfd_world import BurstWorld
from gossip_world import TICK, World, acting, owners

from antrea.outside.gossip.quorum import is_majority

if TYPE_CHECKING:
    from collections.abc import Iterator

HOURS = 0.5
FIVE = [f"node-{number}" for number in range(1, 6)]
NO_SHORTER = 0.9
"""Seconds: who gives up does not act again before."""
MANY_DEATHS = 12.0
"""Seconds within which any number of them is found (docs/membership.md)."""


@pytest.mark.wide
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [2, 3, 5, 10, 30])
@pytest.mark.parametrize("bursts", [False, True])
def test_wide_gossip_loses_nobody_at_5_percent_loss(count: int, *, bursts: bool) -> None:
    world = World([f"node-{number}" for number in range(count)], seed=count)
    world.until(lambda: world.agree(*world.names), within=30)
    world.run(2)
    since, short = len(world.events), 0
    for _ in range(int(HOURS * 3600)):
        if bursts:
            # one in twenty of the time everything is lost, for 50 ms on average
            for _ in range(20):
                world.loss = float(world.random.random() < 0.05)
                world.run(0.05)
        else:
            world.loss = 0.05
            world.run(1)
        short += not all(machine.swim.majority.has for machine in world.machines.values())
    assert world.events[since:] == []
    assert short == 0


@pytest.mark.wide
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("stalls", [False, True])
def test_wide_gossip_and_bfd_part_with_nobody_where_ten_packets_in_a_row_are_lost(
    seed: int, *, stalls: bool
) -> None:
    world = BurstWorld([f"node-{number}" for number in range(3)], seed, stalls=stalls)
    world.run(20)
    assert world.agree(*world.names)
    since = len(world.events)
    world.loses = True
    for _ in range(int(HOURS * 3600 / NO_SHORTER)):
        world.run(NO_SHORTER)
        assert acting(world) == set(world.names)
    assert [whom for _, _, whom, alive in world.events[since:] if not alive] == []


def parted(*sides: int) -> Iterator[tuple[int, ...]]:
    """Every way to part five, as the number of each one's side."""
    if len(sides) == len(FIVE):
        yield sides
        return
    for side in range(max(sides, default=-1) + 2):
        yield from parted(*sides, side)


@pytest.mark.wide
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bfd", [False, True])
def test_wide_gossip_an_address_has_one_owner_however_five_are_parted(*, bfd: bool) -> None:
    for seed, shape in enumerate(parted()):
        world = World(FIVE, seed)
        world.until(lambda: world.agree(*FIVE), within=10)  # noqa: B023
        for name in FIVE if bfd else ():
            world.see(name, True)
        world.run(2)
        sides = [{name for name, at in zip(FIVE, shape, strict=True) if at == side} for side in {*shape}]
        (world.sever if bfd else world.part)(*sides)
        for _ in range(int(MANY_DEATHS / TICK)):
            world.run(TICK)
            assert len(owners(world)) <= 1, shape
        greater = [side for side in sides if is_majority(side, FIVE)]
        assert acting(world) == set().union(*greater), shape
        assert len(owners(world)) == len(greater), shape
