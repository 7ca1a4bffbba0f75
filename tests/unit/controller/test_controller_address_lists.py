"""Egresses of several pools: each entry is given an address of its own pool, none twice, whatever becomes of writes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from address_world import POOL_OF, World, addresses

from antrea.apis.egress_address import EGRESSES
from antrea.features.external_ip_pool.pool import POOLS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    for pool, last in (("p", 4), ("q", 1)):
        made.api.make(f"{POOLS}/{pool}", ranges(pool, last))
    yield made
    made.close()


def ranges(pool: str, last: int) -> dict[str, Any]:
    return {"ipRanges": [{"start": f"{POOL_OF[pool]}1", "end": f"{POOL_OF[pool]}{last}"}]}


def egress(world: World, name: str, *pools: str, **spec: Any) -> None:
    world.api.make(f"{EGRESSES}/{name}", {"externalIPPools": list(pools), **spec})


def listed(world: World, name: str) -> list[str]:
    found: list[str] = world.api.egresses()[name].get("egressIPs", [])
    return found


def judged(world: World, name: str) -> tuple[str, str]:
    (condition,) = world.replicas[0].statuses()[name].conditions
    return condition.status, condition.message


def test_each_entry_is_given_the_lowest_free_address_of_its_pool(world: World) -> None:
    egress(world, "a", "p", "q", "p", "", egressIPs=["", "", "", "192.0.2.1"])
    world.api.make(f"{EGRESSES}/b", {"externalIPPool": "p"})
    egress(world, "c", "p", egressIPs=["10.0.0.2"])
    world.settle(0)
    assert listed(world, "a") == ["10.0.0.1", "10.0.1.1", "10.0.0.3", "192.0.2.1"]
    assert world.api.egresses()["b"]["egressIP"] == "10.0.0.4"
    assert listed(world, "c") == ["10.0.0.2"]
    assert [judged(world, name)[0] for name in "abc"] == ["True"] * 3
    assert world.twice == []


def test_an_entry_that_gets_none_is_said_and_the_others_have_theirs(world: World) -> None:
    egress(world, "a", "q", "p")
    egress(world, "b", "p", "q", "nowhere")
    world.settle(0)
    assert (listed(world, "a"), listed(world, "b")[:2]) == (["10.0.1.1", "10.0.0.1"], ["10.0.0.2", ""])
    start = "Cannot allocate EgressIP from ExternalIPPool: "
    assert judged(world, "b") == ("False", f"{start}cannot allocate IP in any range")
    world.api.tell(f"{EGRESSES}/a", None)
    world.settle(0)
    assert listed(world, "b")[:2] == ["10.0.0.2", "10.0.1.1"]
    assert judged(world, "b") == ("False", f"{start}ExternalIPPool nowhere does not exist")


def test_a_pool_that_goes_takes_its_entry_alone(world: World) -> None:
    egress(world, "a", "p", "q")
    world.settle(0)
    world.api.tell(f"{POOLS}/q", None)
    world.settle(0)
    assert listed(world, "a") == ["10.0.0.1", ""]
    assert judged(world, "a")[0] == "False"
    world.api.make(f"{POOLS}/q", ranges("q", 1))
    world.settle(0)
    assert listed(world, "a") == ["10.0.0.1", "10.0.1.1"]


@pytest.mark.parametrize("seed", range(30))
def test_no_address_is_given_twice_whatever_becomes_of_writes(world: World, seed: int) -> None:
    rnd = random.Random(seed)
    world.lead(0)
    for name in "abcd":
        egress(world, name, *rnd.choices(["p", "q"], k=rnd.randint(1, 3)))
        world.outcomes = rnd.choices(["now", "lost", "late", "refused"], k=4)
        chosen = world.replicas[0]
        chosen.hear(rnd.randint(0, 5))
        chosen.step()
        if rnd.random() < 0.3:
            world.restart(0)
    world.settle(0)
    found = [ip for spec in world.api.egresses().values() for ip in addresses(spec)]
    assert (len(found), world.twice) == (len(set(found)), [])
    wanted = [pool for spec in world.api.egresses().values() for pool in spec["externalIPPools"]]
    assert len(found) == min(wanted.count("p"), 4) + min(wanted.count("q"), 1)
