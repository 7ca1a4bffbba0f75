"""Gossip under who holds the key, and under strangers: nothing raises, nothing grows, and what they did is over with them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from fuzzing import spoilt, value_of
from gossip_world import World

from antrea.errors import Invalid
from antrea.outside.gossip.message import (
    Ack,
    Gossip,
    Message,
    Ping,
    Relay,
    Sync,
    Update,
    View,
    decode_message,
    encode,
)

if TYPE_CHECKING:
    from random import Random

    from fuzzing import Fuzz

pytestmark = [pytest.mark.wide, pytest.mark.timeout(7200)]
FIVE = [f"node-{number}" for number in range(1, 6)]
HOSTILE = FIVE[-1]
COUNTS = (0, 1, 2, 5, 1000, 2**16, 2**16 + 2, 2**31, 2**61, 2**62 - 2, 2**62 - 1)
RECOVERY = 120.0
"""Virtual seconds."""


@cache
def recorded() -> tuple[World, tuple[tuple[str, bytes], ...]]:
    """A network with some history, which nothing may change from now on, and all that was sent."""
    world = World(FIVE)
    world.until(lambda: world.agree(*FIVE), within=10)
    world.kill(HOSTILE)
    world.run(5)
    world.start(HOSTILE)
    world.until(lambda: world.agree(*FIVE), within=10)
    return world, tuple(world.tapped)


def state(world: World) -> dict[str, Any]:
    return {
        name: (
            machine.swim.incarnation,
            machine.swim.majority.has,
            {one: (row.incarnation, row.standing, row.heard) for one, row in machine.swim.rows.items()},
            sorted(machine.channels._by_name),
            {peer: len(offers) for peer, offers in machine.channels._offers.items()},
        )
        for name, machine in world.machines.items()
    }


def test_wide_fuzz_gossip_of_strangers(fuzz: Fuzz) -> None:
    world, packets = recorded()
    known = {data for _, data in packets}
    before = state(world)
    for rnd in fuzz:
        to, data = rnd.choice(packets)
        one = spoilt(rnd, data)
        if one in known:
            continue
        world.machines[rnd.choice((to, *FIVE))].packet(world.now, one)
        for machine in world.machines.values():
            assert machine.pop_output() == ([], [])
        if fuzz.count % 1000 == 0:
            assert state(world) == before
    assert state(world) == before


def update(rnd: Random) -> Update:
    node = rnd.choice((*FIVE, "nobody", "x" * 253))
    witness = rnd.choice((*FIVE, "", "nobody", str(rnd.random())))
    return msgspec.convert([node, rnd.choice(COUNTS), rnd.randrange(4), witness], Update)


def view(rnd: Random) -> View:
    ends = rnd.choice((*FIVE, "nobody")), rnd.choice((*FIVE, "nobody"))
    return View(*ends, rnd.choice(COUNTS), rnd.choice((True, False, None)), rnd.random() < 0.5)


def message(rnd: Random) -> Message:
    updates = tuple(update(rnd) for _ in range(rnd.randrange(6)))
    views = tuple(view(rnd) for _ in range(rnd.randrange(6)))
    number, incarnation = rnd.choice(COUNTS), rnd.choice(COUNTS)
    return rnd.choice(
        (
            Ping(number, incarnation, updates),
            Ack(number, incarnation, updates),
            Relay(number, incarnation, rnd.choice((*FIVE, "nobody")), updates),
            Gossip(incarnation, updates, views),
            Sync(incarnation, rnd.random() < 0.5, updates, views),
        )
    )


def test_wide_fuzz_gossip_of_who_holds_the_key(fuzz: Fuzz) -> None:
    for rnd in fuzz:
        world = World(FIVE, rnd.randrange(1000))
        world.until(lambda: world.agree(*FIVE), within=10)  # noqa: B023
        for _ in range(rnd.randrange(1, 60)):
            # in its own name or in another's
            sender, to = rnd.sample(FIVE, 2)
            if sender == HOSTILE or rnd.random() < 0.3:
                world.machines[to].swim.received(world.now, sender, message(rnd))
            if rnd.random() < 0.3:
                world.run(rnd.random())
        world.kill(HOSTILE)
        rest = FIVE[:-1]
        world.until(lambda: world.agree(*rest), within=RECOVERY)  # noqa: B023
        for machine in world.machines.values():
            assert machine.channels.dropped["unreadable"] == 0
            assert len(machine.swim._updates._broadcasts) <= len(FIVE)
            assert sum(map(len, machine.swim.bfd._views.values())) <= len(FIVE) ** 2


def test_wide_fuzz_gossip_messages_are_read_or_refused(fuzz: Fuzz) -> None:
    read = refused = 0
    for rnd in fuzz:
        made = (
            msgspec.msgpack.encode(value_of(rnd, rnd.choice((Ping, Sync, Gossip))))
            if rnd.random() < 0.2
            else encode(message(rnd))
        )
        try:
            decode_message(made if rnd.random() < 0.3 else spoilt(rnd, made))
            read += 1
        except Invalid:
            refused += 1
    print(f"{read} read, {refused} refused")
    assert min(read, refused) > 0
