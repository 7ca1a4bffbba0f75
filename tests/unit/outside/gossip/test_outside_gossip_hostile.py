"""Who holds the key may say anything, a stranger may say again what was said: once they stop, all is as before."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest
from gossip_world import KEY, NOTICED, World

from antrea.outside.gossip.channel import HELLO, Channels, OutgoingMessage
from antrea.outside.gossip.message import Ack, Gossip, Ping, Standing, Sync, Update, View

if TYPE_CHECKING:
    from antrea.outside.gossip.message import Message

pytestmark = pytest.mark.untraced

FIVE = [f"node-{number}" for number in range(1, 6)]
VICTIM, HOSTILE = "node-1", "node-5"
HIGHEST = 2**62 - 1
RECOVERY = 45.0
"""Seconds from the last hostile word until all agree again: every member has walked to every other one, and synced with it."""


def whole() -> World:
    world = World(FIVE)
    world.until(lambda: world.agree(*FIVE), within=10)
    world.run(2)
    return world


def say(world: World, sender: str, message: Message, *to: str) -> None:
    """An authentic message of `sender`, to all others."""
    for name in to or FIVE:
        if name != sender and name in world.machines:
            world.machines[name].swim.received(world.now, sender, message)


WORDS: dict[str, Message] = {
    "dead": Gossip(0, (Update(VICTIM, HIGHEST, Standing.DEAD, HOSTILE),)),
    "suspect": Gossip(0, (Update(VICTIM, HIGHEST, Standing.SUSPECT, HOSTILE),)),
    "left": Gossip(0, (Update(VICTIM, HIGHEST, Standing.LEFT, VICTIM),)),
    "alive": Gossip(0, (Update(VICTIM, HIGHEST, Standing.ALIVE),)),
    "one below": Gossip(0, (Update(VICTIM, HIGHEST - 1, Standing.DEAD, HOSTILE),)),
    "synced": Sync(0, True, (Update(VICTIM, HIGHEST, Standing.DEAD, HOSTILE),)),
    "view of itself": Gossip(0, (), (View(VICTIM, VICTIM, HIGHEST, None, True),)),
    "view of another": Gossip(0, (), (View(VICTIM, "node-2", HIGHEST, False),)),
}


@pytest.mark.parametrize("word", WORDS)
def test_gossip_the_highest_number_in_a_rumour_poisons_nobody_for_good(word: str) -> None:
    world = whole()
    if "view" in word:
        world.see(VICTIM, True)
        world.see("node-2", True)
        world.run(1)
    say(world, HOSTILE, WORDS[word])
    world.run(2)
    say(world, HOSTILE, WORDS[word])
    world.kill(HOSTILE)
    world.see(HOSTILE, False, within=NOTICED)
    rest = FIVE[:-1]
    world.until(lambda: world.agree(*rest), within=RECOVERY)
    # also one that is accused rightly, refutes, or begins anew
    world.pause(VICTIM)
    world.run(4)
    world.resume(VICTIM)
    world.until(lambda: world.agree(*rest), within=RECOVERY)
    world.kill("node-2")
    world.see("node-2", False, within=NOTICED)
    world.until(lambda: world.agree(VICTIM, "node-3", "node-4"), within=RECOVERY)
    world.start("node-2")
    world.see("node-2", True)
    world.until(lambda: world.agree(*rest), within=RECOVERY)
    assert not any(machine.channels.dropped["unreadable"] for machine in world.machines.values())


@pytest.mark.parametrize("incarnation", [HIGHEST, HIGHEST - 1, 10**6])
def test_gossip_who_speaks_in_the_name_of_another_is_overridden_by_that_one(incarnation: int) -> None:
    world = whole()
    for message in (Gossip(incarnation), Ping(1, incarnation), Ack(1, incarnation), Sync(incarnation, False)):
        say(world, VICTIM, message)
    world.run(1)
    for accused in (VICTIM, "node-2"):
        world.kill(accused)
        world.until(lambda: world.agree(*[one for one in FIVE if one != accused]), within=RECOVERY)  # noqa: B023
        world.start(accused)
        world.until(lambda: world.agree(*FIVE), within=RECOVERY)


def test_gossip_a_newcomer_that_was_told_nonsense_of_all_others_learns_better_from_them() -> None:
    world = whole()
    world.kill("node-2")
    world.until(lambda: world.agree(*[one for one in FIVE if one != "node-2"]), within=RECOVERY)
    world.start("node-2")
    nonsense = tuple(Update(name, HIGHEST, Standing.DEAD, HOSTILE) for name in FIVE)
    views = tuple(View(one, other, HIGHEST, False) for one in FIVE for other in FIVE)
    say(world, HOSTILE, Sync(HIGHEST, False, nonsense, views), "node-2")
    world.until(lambda: world.agree(*FIVE), within=RECOVERY)


def test_gossip_witnesses_that_are_none_are_not_kept() -> None:
    world = whole()
    for number in range(2000):
        say(world, HOSTILE, Gossip(0, (Update(VICTIM, 0, Standing.SUSPECT, f"nobody-{number}"),)), "node-2")
        say(world, HOSTILE, Gossip(0, (), (View(f"nobody-{number}", VICTIM, 1, False),)), "node-2")
    swim = world.machines["node-2"].swim
    assert sum(len(held) for held in swim._updates._broadcasts.values()) < 20
    world.until(lambda: world.agree(*FIVE), within=RECOVERY)


def ends(*seeds: int) -> list[Channels]:
    """Channels of a and of b."""
    made = []
    for seed, (me, other) in zip(seeds, [("a", "b"), ("b", "a")], strict=False):
        channels = Channels(me, Random(seed).randbytes)
        channels.keys((KEY,))
        channels.peers([other])
        made.append(channels)
    return made


def recorded(count: int) -> list[bytes]:
    """Greetings of earlier processes of a, which nobody answered."""
    return [next(ends(seed)[0].send(0.0, "b", OutgoingMessage(b""))).data for seed in range(100, 100 + count)]


def test_gossip_a_channel_comes_about_while_greetings_are_replayed() -> None:
    b = ends(1, 2)[1]
    replayed = recorded(50)
    for seed in range(10, 15):
        a = ends(seed)[0]
        (hello,) = a.send(0.0, "b", OutgoingMessage(b"first"))
        assert hello.data[:1] == HELLO
        (welcome,) = b.open(hello.data).send
        for one in replayed * 2:
            b.open(one)
        texts = []
        for packet in a.open(welcome.data).send:
            for one in replayed:
                b.open(one)
            texts.append(b.open(packet.data).text)
        assert [text for text in texts if text is not None] == [b"first"]
        # the same the other way: b's answers find a
        assert [a.open(one.data).text for one in b.send(0.0, "a", OutgoingMessage(b"answer"))] == [b"answer"]
    assert len(b._by_name) <= 5


def test_gossip_a_member_that_starts_is_heard_while_greetings_are_replayed_all_the_time() -> None:
    world = World(FIVE)
    world.run(20)
    for _ in range(20):
        world.kill(VICTIM)
        world.start(VICTIM)
        world.run(0.5)
    greetings = [(to, data) for to, data in world.tapped if data[:1] == HELLO]
    world.kill(VICTIM)
    world.until(lambda: world.agree(*FIVE[1:]), within=RECOVERY)
    world.start(VICTIM)
    assert len(greetings) > 40
    began = world.now
    while not world.agree(*FIVE):
        for to, data in greetings:
            world.deliver(to, data)
        world.run(0.0005)
        assert world.now - began < 5


def test_gossip_a_greeting_of_who_holds_the_key_is_as_it_should_be_or_is_nothing() -> None:
    a, b = ends(1, 2)
    for value in (
        b"\x94\xa1\xff\xa1b\xc4\x00\xc4\x00",
        b"\x91" * 5000,
        msgspec.msgpack.encode(["a", "b", b"short"]),
    ):
        nonce = bytes(12)
        packet = HELLO + nonce + a._greeting_boxes[KEY].seal(nonce, value, HELLO)
        assert b.open(packet).send == ()
    assert sum(b.dropped.values()) == 3
