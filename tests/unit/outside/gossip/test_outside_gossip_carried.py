"""What features send to one member by the gossip: sealed, in order, accepted once and from members alone."""

from __future__ import annotations

import pytest
from gossip_world import World

from antrea.errors import Invalid
from antrea.outside.gossip.message import Carried, decode_message, encode

MANY = 40


def whole() -> World:
    world = World([f"node-{number}" for number in range(1, 4)])
    world.until(lambda: world.agree(*world.names), within=10)
    return world


def carry(world: World, *texts: bytes, to: str = "node-2") -> None:
    machine = world.machines["node-1"]
    for text in texts:
        machine.carry(world.now, to, Carried("test", text))
    world.run(0.5)


def received(world: World, name: str = "node-2") -> list[tuple[str, bytes]]:
    return [(sender, message.data) for sender, message in world.machines[name].carried]


def test_a_member_receives_what_is_carried_to_it_and_from_whom() -> None:
    world = whole()
    carry(world, *(b"%d" % number for number in range(MANY)), bytes(100_000))
    assert {*received(world)} == {("node-1", b"%d" % number) for number in range(MANY)} | {
        ("node-1", bytes(100_000))
    }
    assert received(world, "node-3") == []


def test_what_was_recorded_is_not_accepted_again_and_what_was_changed_never() -> None:
    world = whole()
    world.tapped.clear()
    carry(world, b"once")
    sent = [data for to, data in world.tapped if to == "node-2"]
    assert received(world) == [("node-1", b"once")]
    machine = world.machines["node-2"]
    for data in sent:
        machine.packet(world.now, data)
        machine.packet(world.now, data[:-1] + bytes([data[-1] ^ 1]))
    assert received(world) == [("node-1", b"once")]
    assert machine.channels.dropped["replayed"]


def test_nothing_is_sent_to_a_member_that_is_dead() -> None:
    world = whole()
    world.kill("node-2")
    world.until(lambda: not world.machines["node-1"].swim.rows["node-2"].lives, within=10)
    world.tapped.clear()
    carry(world, bytes(50_000))
    assert not [data for to, data in world.tapped if len(data) > 50_000]


@pytest.mark.parametrize(
    "message", [Carried("", b""), Carried("x" * 65, b""), Carried("x", bytes((1 << 19) + 1))]
)
def test_what_is_too_large_or_has_no_purpose_is_refused(message: Carried) -> None:
    with pytest.raises(Invalid):
        decode_message(encode(message))
