"""What is counted of a connection when its set forgets it, or another connection has the same ends."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest

from antrea.openflow.tracked_connection import TrackedConnection
from antrea.outside.nftables.libnftables import NftError
from antrea.outside.nftables.pod_counters import PodCounters

POD, PEER = "10.10.0.5", "10.20.0.9"
FOUND = TrackedConnection(
    (6, POD, 4000, PEER, 80, 0), "10.96.0.1", 8080, "192.0.2.1", 5000, 0, 0, 0, 0, "", 0, 0, "ESTABLISHED"
)


class Sets(dict[str, dict[bytes, bytes]]):
    """What the kernel has in the sets."""

    def read(self, name: str, size: int) -> dict[bytes, bytes]:
        found = self.get(name, {})
        assert {len(key) for key in found} <= {size}
        return found


class Nothing:
    """Takes every change of nftables."""

    in_process = True

    def run(self, commands: str) -> str:
        return ""


def element(
    source: str, sport: int, destination: str, port: int, packets: int, octets: int
) -> dict[bytes, bytes]:
    ends = b"".join(ip_address(one).packed for one in (source, destination))
    key = ends + b"\6\0\0\0" + b"".join(struct.pack("!Hxx", one) for one in (sport, port))
    return {key: struct.pack("!Q4xQ", octets, packets)}


class World:
    """Counters that are told what has changed."""

    def __init__(self, sets: Sets) -> None:
        self.counters = PodCounters(5, Nothing(), sets)
        self._before: tuple[TrackedConnection, ...] = ()

    async def counts(self, local: set[str], *found: TrackedConnection) -> list[tuple[int, ...]]:
        """Of each connection, and of those alone that have changed."""
        await self.counters.read()
        changed = [one for one in found if one not in self._before]
        gone = [one for one in self._before if one not in found]
        self._before = found
        self.told = [numbers(one) for one in self.counters.apply(changed, gone, local)]
        return [numbers(self.counters.counted(one)) for one in found]


def numbers(one: TrackedConnection) -> tuple[int, ...]:
    return (one.packets, one.byte_count, one.reply_packets, one.reply_byte_count)


async def test_each_end_counts_by_the_addresses_that_are_seen_there() -> None:
    sets = Sets()
    world = World(sets)
    # at the client the Service's address, at the server the one that the client was translated to
    sets["up4"] = element(POD, 4000, "10.96.0.1", 8080, 2, 100) | element(PEER, 80, "192.0.2.1", 5000, 4, 400)
    sets["down4"] = element("10.96.0.1", 8080, POD, 4000, 3, 342) | element(
        "192.0.2.1", 5000, PEER, 80, 5, 570
    )
    assert await world.counts({POD, PEER}, FOUND) == [(2, 100, 3, 300)]
    assert await World(sets).counts({PEER}, FOUND) == [(5, 500, 4, 400)]


@pytest.mark.parametrize("shown", [{}, element(POD, 4000, "10.96.0.1", 8080, 1, 50)])
async def test_what_a_set_has_forgotten_stays_counted(shown: dict[bytes, bytes]) -> None:
    sets = Sets()
    world = World(sets)
    sets["up4"] = element(POD, 4000, "10.96.0.1", 8080, 7, 700)
    assert await world.counts({POD}, FOUND) == [(7, 700, 0, 0)]
    sets["up4"] = shown
    assert await world.counts({POD}, FOUND) == [((8, 750, 0, 0) if shown else (7, 700, 0, 0))]


async def test_a_later_connection_with_the_same_ends_begins_at_nothing() -> None:
    sets = Sets()
    world = World(sets)
    sets["up4"] = element(POD, 4000, "10.96.0.1", 8080, 7, 700)
    assert await world.counts({POD}, FOUND) == [(7, 700, 0, 0)]
    assert await world.counts({POD}) == []
    sets["up4"] = element(POD, 4000, "10.96.0.1", 8080, 9, 800)
    assert await world.counts({POD}, FOUND) == [(2, 100, 0, 0)]
    sets["up4"] = {}
    assert await world.counts({POD}) == []
    assert await world.counts({POD}, FOUND) == [(0, 0, 0, 0)]


async def test_only_what_was_counted_since_is_told() -> None:
    sets, other = Sets(), FOUND._replace(key=(6, POD, 4001, PEER, 80, 0))
    world = World(sets)
    first, second = (element(POD, port, "10.96.0.1", 8080, 7, 700) for port in (4000, 4001))
    sets["up4"] = first | second
    assert await world.counts({POD}, FOUND, other) == [(7, 700, 0, 0)] * 2
    assert world.told == [(7, 700, 0, 0)] * 2
    await world.counts({POD}, FOUND, other)
    assert world.told == []
    sets["up4"] = element(POD, 4000, "10.96.0.1", 8080, 8, 700) | second
    await world.counts({POD}, FOUND, other)
    assert world.told == [(8, 700, 0, 0)]
    sets["up4"] = second
    assert await world.counts({POD}, FOUND, other) == [(8, 700, 0, 0), (7, 700, 0, 0)]


async def test_nothing_is_left_of_connections_whose_pod_has_come_meanwhile() -> None:
    sets = Sets()
    world = World(sets)
    sets["down4"] = element("192.0.2.1", 5000, PEER, 80, 5, 570)
    assert await world.counts({PEER}, FOUND) == [(5, 500, 0, 0)]
    assert await world.counts({PEER, POD}, FOUND) == [(0, 0, 0, 0)]
    await world.counts({PEER, POD})
    assert not any(world.counters._totals.values())


async def test_an_interface_that_cannot_be_counted_at_is_named_and_others_are_counted() -> None:
    class Refusing(Nothing):
        def run(self, commands: str) -> str:
            if '"bad"' in commands:
                raise NftError("Operation not supported")
            return ""

    counters = PodCounters(5, Refusing(), Sets())
    await counters.follow(["bad", "good"])
    assert counters.trouble == "interface bad: counters of Pods cannot be read: Operation not supported"
    await counters.follow(["good"])
    assert counters.trouble == ""


@pytest.mark.parametrize(("poll", "silence"), [(1, 30), (5, 30), (60, 240)])
async def test_a_set_forgets_after_some_reads_and_no_sooner(poll: float, silence: int) -> None:
    class Made(Nothing):
        commands = ""

        def run(self, commands: str) -> str:
            self.commands += commands
            return ""

    made = Made()
    await PodCounters(poll, made, Sets()).follow([])
    assert made.commands.count(f"timeout {silence}s;") == 4
