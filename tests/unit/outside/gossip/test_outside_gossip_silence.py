"""Networks in which members are not heard, as they report them to each other, in virtual time."""

from __future__ import annotations

import pytest
from gossip_world import World

from antrea.errors import Invalid
from antrea.outside.gossip.machine import AGAIN_SECONDS
from antrea.outside.gossip.message import Silence, decode_message, encode
from antrea.outside.gossip.swim import ROOM

pytestmark = pytest.mark.untraced

NETWORK, LONG = (
    ("192.0.2.0/24",),
    tuple(f"2001:db8:1111:2222:3333:4444:5555:{number:x}/128" for number in range(64)),
)


def whole(count: int) -> World:
    world = World([f"node-{number}" for number in range(1, count + 1)])
    world.until(lambda: world.agree(*world.names), within=10)
    return world


def say(world: World, name: str, networks: tuple[str, ...]) -> None:
    world.machines[name].silence.observe(world.now, networks)


def all_have(world: World, name: str, networks: tuple[str, ...]) -> bool:
    others = (machine for other, machine in world.machines.items() if other != name)
    return all(machine.silence.reports.get(name) == networks for machine in others)


@pytest.mark.parametrize("networks", [NETWORK, LONG])
def test_all_members_have_a_report_at_once_and_that_it_is_over(networks: tuple[str, ...]) -> None:
    world = whole(5)
    say(world, "node-2", networks)
    world.until(lambda: all_have(world, "node-2", networks), within=1)
    say(world, "node-2", ())
    world.until(lambda: all_have(world, "node-2", ()), within=1)
    assert world.longest <= ROOM + 100  # a long one went over TCP


def test_where_packets_are_lost_and_where_members_were_parted_it_comes_again() -> None:
    world = whole(5)
    world.loss = 0.5
    say(world, "node-2", NETWORK)
    world.until(lambda: all_have(world, "node-2", NETWORK), within=6 * AGAIN_SECONDS)
    world.loss = 0.0
    world.part(("node-2",), ("node-1", "node-3", "node-4", "node-5"))
    say(world, "node-2", ())
    world.run(2)
    assert all_have(world, "node-2", NETWORK)
    world.part()
    world.until(lambda: all_have(world, "node-2", ()), within=3 * AGAIN_SECONDS)


def test_a_member_that_starts_learns_what_others_report_and_what_has_ended_is_sent_no_longer() -> None:
    world = whole(3)
    say(world, "node-1", ())
    say(world, "node-2", NETWORK)
    world.run(1)
    world.kill("node-3")
    world.start("node-3")
    started = world.machines["node-3"]
    world.until(lambda: started.silence.reports == {"node-2": NETWORK}, within=AGAIN_SECONDS + 5)
    say(world, "node-2", ())
    world.run(8 * AGAIN_SECONDS)
    world.kill("node-3")
    world.start("node-3")
    world.run(3 * AGAIN_SECONDS)
    assert world.machines["node-3"].silence.reports == {}


def test_who_is_no_member_any_more_is_forgotten() -> None:
    world = whole(3)
    say(world, "node-2", NETWORK)
    world.until(lambda: all_have(world, "node-2", NETWORK), within=1)
    world.machines["node-1"].peers(["node-1", "node-3"])
    assert world.machines["node-1"].silence.reports == {}


def test_a_report_that_is_too_long_is_not_read() -> None:
    for networks in (("x" * 65,), tuple(str(number) for number in range(65))):
        with pytest.raises(Invalid, match="gossip"):
            decode_message(encode(Silence(networks)))
