"""Forged, replayed, reflected and garbled packets: nothing comes of them."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

from gossip_world import KEY, World
from hypothesis import given, settings
from hypothesis import strategies as st

from antrea.outside.gossip.channel import BOTH, DATA, DATAGRAM, HELLO, WELCOME, Channels, OutgoingMessage
from antrea.outside.gossip.crypto import derived
from antrea.outside.gossip.message import Ping, Standing, Update, decode_message, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

THREE = ["node-1", "node-2", "node-3"]
OTHER_KEY = bytes(32)


def held(world: World) -> dict[str, Any]:
    """All that counts of every member's state."""
    return {
        name: (
            machine.swim.incarnation,
            machine.swim.majority.has,
            machine.swim.majority.heard,
            {one: (row.incarnation, row.standing, row.heard) for one, row in machine.swim.rows.items()},
        )
        for name, machine in world.machines.items()
    }


def talking() -> World:
    """A network with some history: joins, a suspicion refuted, a death."""
    world = World(THREE)
    world.until(lambda: world.agree(*THREE), within=10)
    world.pause("node-2")
    world.run(1.5)
    world.resume("node-2")
    world.run(1)
    world.kill("node-3")
    world.run(5)
    world.start("node-3")
    world.until(lambda: world.agree(*THREE), within=5)
    world.run(1)
    return world


steady = cache(talking)
"""One that is shared: nothing may change it."""


def answers(world: World, to: str, data: bytes) -> list[bytes]:
    """What a member sends because of this packet."""
    machine = world.machines[to]
    machine.packet(world.now, data)
    packets, changes = machine.pop_output()
    assert changes == []
    return [packet.data for packet in packets]


def test_gossip_whatever_was_recorded_changes_nothing_when_it_comes_again() -> None:
    world = talking()
    world.run(2)
    in_flight = {data for _, data in world.tapped[-30:]}
    recorded = [(to, data) for to, data in world.tapped if data not in in_flight]
    assert {data[:1] for _, data in recorded} == {HELLO, WELCOME, DATA, BOTH}
    before = held(world)
    found = {data[:1] for to, data in recorded for data in answers(world, to, data)}
    assert held(world) == before
    assert found <= {WELCOME}, "only a greeting is answered, and that proves nothing"
    world.run(10)
    assert world.agree(*THREE)


def test_gossip_what_an_earlier_process_was_told_changes_nothing_in_the_next() -> None:
    world = talking()
    recorded = [data for to, data in world.tapped if to == "node-1"]
    world.kill("node-1")
    world.start("node-1")
    before = held(world)
    for data in recorded:
        answers(world, "node-1", data)
    assert held(world) == before


def test_gossip_what_is_for_one_changes_nothing_in_another() -> None:
    world = talking()
    before = held(world)
    for to, data in world.tapped:
        for other in set(THREE) - {to}:
            assert answers(world, other, data) == []
    assert held(world) == before


@settings(max_examples=150, deadline=None)
@given(st.integers(min_value=0), st.integers(min_value=0), st.integers(min_value=0))
def test_gossip_a_packet_that_was_changed_anywhere_changes_nothing(which: int, bit: int, length: int) -> None:
    world = steady()
    to, packet = world.tapped[which % len(world.tapped)]
    flipped = int.from_bytes(packet, "big") ^ 1 << bit % (8 * len(packet))
    changed, cut = flipped.to_bytes(len(packet), "big"), packet[: length % len(packet)]
    before = held(world)
    for one in (changed, cut, packet + b"\0"):
        assert answers(world, to, one) == []
    assert held(world) == before


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([b"", HELLO, WELCOME, DATA, BOTH]), st.binary(max_size=100))
def test_gossip_random_bytes_change_nothing(kind: bytes, rest: bytes) -> None:
    before = held(steady())
    assert answers(steady(), "node-1", kind + rest) == []
    assert held(steady()) == before


def test_gossip_who_has_another_key_is_not_heard() -> None:
    world = World(THREE)
    world.machines["node-3"].keys((OTHER_KEY,))
    world.run(20)
    assert world.views() == {
        "node-1": {"node-1", "node-2"},
        "node-2": {"node-1", "node-2"},
        "node-3": {"node-3"},
    }
    assert world.machines["node-3"].channels.dropped["forged"] > 0


def test_gossip_without_a_key_an_agent_is_silent_and_deaf() -> None:
    world = World(THREE)
    world.machines["node-3"].keys(())
    world.run(20)
    assert world.view("node-3") == {"node-3"}
    assert world.view("node-1") == {"node-1", "node-2"}


def test_gossip_keys_are_exchanged_step_by_step_without_anybody_dying() -> None:
    world = World(THREE)
    world.until(lambda: world.agree(*THREE), within=10)
    since = len(world.events)
    for keys in ((KEY, OTHER_KEY), (OTHER_KEY, KEY), (OTHER_KEY,)):
        for name in THREE:
            world.machines[name].keys(keys)
            world.run(2)
        world.run(3)
    assert world.events[since:] == []


def test_gossip_a_name_that_kubernetes_does_not_list_is_not_heard_even_with_the_key() -> None:
    world = World(THREE)
    world.run(5)
    for name in THREE[:2]:
        world.machines[name].peers(THREE[:2])
    world.run(5)
    world.tapped.clear()
    world.run(5)
    assert {data[:1] for to, data in world.tapped if to in THREE[:2]} == {DATA, HELLO}
    assert world.agree(*THREE[:2])
    assert world.machines["node-1"].channels.dropped["not a peer"] > 0


def pair(start: int = 0) -> tuple[Channels, Channels]:
    both = []
    for seed, (me, other) in enumerate([("a", "b"), ("b", "a")], start):
        channels = Channels(me, Random(seed).randbytes)
        channels.keys((KEY,))
        channels.peers([other])
        both.append(channels)
    return both[0], both[1]


def joined() -> tuple[Channels, Channels]:
    a, b = pair()
    (hello,) = a.send(0.0, "b", OutgoingMessage(b"first"))
    (welcome,) = b.open(hello.data).send
    (first,) = a.open(welcome.data).send
    assert b.open(first.data) == ("a", b"first", ())
    a.open(next(b.send(0.0, "a", OutgoingMessage(b"heard"))).data)
    return a, b


def test_gossip_a_packet_is_taken_once_in_whatever_order_they_come() -> None:
    a, b = joined()
    packets = [next(a.send(0.0, "b", OutgoingMessage(str(number).encode()))).data for number in range(300)]
    Random(3).shuffle(packets)
    assert {b.open(packet).text for packet in packets} == {str(number).encode() for number in range(300)}
    assert [b.open(packet).text for packet in packets] == [None] * 300
    assert b.dropped == {"replayed": 300}


def test_gossip_what_is_overtaken_by_too_many_is_dropped() -> None:
    a, b = joined()
    late, *packets = [next(a.send(0.0, "b", OutgoingMessage(b"x"))).data for _ in range(1025)]
    b.open(packets[-1])
    assert b.open(late).text is None
    assert b.open(packets[0]).text == b"x"


def test_gossip_replayed_greetings_take_no_place_and_no_channel_in_use() -> None:
    a, b = joined()
    hellos: list[bytes] = []
    for number in range(20):
        *_, hello = a.send(10.0 * number, "b", OutgoingMessage(b"again"), renew=True)
        hellos.append(hello.data)
    for greeting in hellos * 3:
        b.open(greeting)
    assert len(b._by_name) == 1
    assert b.open(next(a.send(0.0, "b", OutgoingMessage(b"still"))).data).text == b"still"


def test_gossip_a_recorded_welcome_does_not_answer_another_greeting() -> None:
    a, b = pair()
    (hello,) = a.send(0.0, "b", OutgoingMessage(b"first"))
    (welcome,) = b.open(hello.data).send
    a.open(welcome.data)
    list(a.send(10.0, "b", OutgoingMessage(b"again"), renew=True))
    before = a._now["b"]
    assert a.open(welcome.data) == ("", None, ())
    assert a._now["b"] is before
    assert a.dropped == {"replayed": 1}


def test_gossip_who_was_restarted_is_heard_again_after_a_greeting() -> None:
    a, b = joined()
    fresh, _ = pair(7)
    (hello,) = fresh.send(0.0, "b", OutgoingMessage(b"new"))
    (welcome,) = b.open(hello.data).send
    (new,) = fresh.open(welcome.data).send
    assert b.open(new.data).text == b"new"
    answer = next(b.send(0.0, "a", OutgoingMessage(b"answer"))).data
    assert fresh.open(answer).text == b"answer"
    assert a.open(answer).text is None


def test_gossip_a_long_text_goes_beside_the_proof_of_its_channel_in_packets_that_fit() -> None:
    a, b = pair()
    (hello,) = a.send(0.0, "b", OutgoingMessage(b"x" * 1160))
    (welcome,) = b.open(hello.data).send
    packets = a.open(welcome.data).send
    assert [one.data[:1] for one in packets] == [HELLO, DATA]
    assert max(len(one.data) for one in packets) <= DATAGRAM
    assert [b.open(one.data).text for one in packets] == [None, b"x" * 1160]
    # a proof that comes again changes nothing, and one of long ago neither
    assert b.open(packets[0].data) == ("a", None, ())


def test_gossip_the_texts_that_wait_for_a_channel_are_bounded() -> None:
    a, _ = pair()
    for number in range(1000):
        list(a.send(0.0, "b", OutgoingMessage(bytes([number % 256]))))
    assert len(a._waiting["b"]) == 8


def test_gossip_key_derivation_is_hkdf() -> None:
    # RFC 5869 A.1 and A.3
    okm = derived(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)), 42)
    assert okm.hex().startswith("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf")
    assert derived(b"\x0b" * 22, b"", b"", 42).hex().startswith("8da4e775a563c18f715f802a063c5a31")


def messages() -> Iterator[Ping]:
    yield Ping(0, 0)
    yield Ping(2**62 - 1, 7, (Update("node-1", 3, Standing.SUSPECT, "node-2"),))


def test_gossip_messages_read_back_as_written_and_fit_few_bytes() -> None:
    assert [decode_message(encode(message)) for message in messages()] == list(messages())
    assert len(encode(Ping(1, 0, (Update("node-1", 3, Standing.ALIVE),)))) < 24
