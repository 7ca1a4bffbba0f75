"""Probes of other Nodes without a network: what counts as an answer, what is told, reported and counted."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from antrea.engine import Facts
from antrea.features.node_latency.agent_part.measurement import Measurement
from antrea.features.node_latency.agent_part.prober import LatencyProber
from antrea.features.node_latency.monitor import LatencyMonitor
from antrea.features.node_latency.target import LatencyTarget
from antrea.outside.icmp.echo import EchoReply

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 10**6
START = 1_800_000_000 * 10**9


class Wire:
    """Has what was sent, by address: sequence number and data."""

    def __init__(self) -> None:
        self.sent: dict[str, tuple[int, bytes]] = {}
        self.broken: set[str] = set()
        self.now = START

    def send(self, ip: str, sequence: int, data: bytes) -> int:
        if ip in self.broken:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")
        self.sent[ip] = (sequence, data)
        return self.now

    def close(self) -> None:
        self.sent.clear()


class World:
    """A prober of `n1`, with `said` by it."""

    def __init__(self, monitor: LatencyMonitor, *targets: LatencyTarget) -> None:
        self.facts, self.wire, self.said = Facts(), Wire(), list[tuple[str, str, bool]]()
        self.monitor, self.lasted = monitor, 0
        for row in (monitor, *targets):
            self.facts.put(row)

        def socket(_: bool, __: Callable[[EchoReply], None]) -> Wire:
            return self.wire

        self.prober = LatencyProber(
            self.facts, "n1", sockets=socket, controller=lambda: None,
            record=lambda *one: self.said.append(one), lasting=lambda: self.lasted,
        )  # fmt: skip

    async def round(self, *rtts: int | None, ip: str = "10.10.1.1") -> None:
        """Probes, each answered after so many nanoseconds; None: not at all."""
        for rtt in rtts:
            await self.prober.probe(self.monitor)
            if rtt is not None:
                self.answer(ip, rtt)

    def answer(self, asked: str, rtt: int, *, lasted: int | None = None, **changes: Any) -> None:
        """`rtt` by the clock on the wall; it took as long, or `lasted`."""
        self.lasted += rtt if lasted is None else lasted
        sequence, data = self.wire.sent[asked]
        reply = EchoReply(asked, sequence, data, self.wire.now + rtt)
        self.prober.receive(reply._replace(**changes))

    def stats(self) -> dict[str, dict[str, tuple[int, str | None]]]:
        """By Node and address: round trip and when the last answer came."""
        return {
            peer.node_name: {
                one.target_ip: (one.last_measured_rtt_nanoseconds, one.last_recv_time)
                for one in peer.target_ip_latency_stats
            }
            for peer in self.prober.stats.peer_node_latency_stats
        }


TARGET, TARGET6 = LatencyTarget("10.10.1.1", "n2"), LatencyTarget("fd00:10:1::1", "n2")


async def test_answers_are_measured_and_addresses_without_one_have_no_time() -> None:
    world = World(LatencyMonitor(10.0), TARGET, TARGET6, LatencyTarget("10.10.2.1", "n3"))
    world.wire.broken = {"10.10.2.1"}
    await world.round(2 * MS)
    assert world.stats() == {
        "n2": {"10.10.1.1": (2 * MS, "2027-01-15T08:00:00Z"), "fd00:10:1::1": (0, None)},
        "n3": {},
    }
    text = world.prober.metrics()
    assert 'antrea_agent_node_latency_milliseconds_bucket{ip_family="v4",le="2"} 1\n' in text
    assert 'antrea_agent_node_latency_milliseconds_bucket{ip_family="v4",le="1"} 0\n' in text
    await world.round(None)
    assert 'antrea_agent_node_latency_unanswered_count{ip_family="v6"} 1\n' in world.prober.metrics()
    assert 'antrea_agent_node_latency_unanswered_count{ip_family="v4"} 1\n' in world.prober.metrics()  # of n3
    world.facts.drop(LatencyTarget, TARGET6.key)
    await world.round(MS)
    assert world.stats()["n2"] == {"10.10.1.1": (MS, "2027-01-15T08:00:00Z")}


async def test_what_is_no_answer_to_the_last_probe_counts_for_nothing() -> None:
    world = World(LatencyMonitor(10.0), TARGET)
    await world.prober.probe(world.monitor)
    sequence, data = world.wire.sent[TARGET.ip]
    for odd in (
        {"ip": "10.10.9.9"}, {"sequence": sequence + 1}, {"data": b""}, {"data": bytes(16)}, {"data": data + b"x"},
    ):  # fmt: skip
        world.answer(TARGET.ip, MS, **odd)
    assert world.stats() == {"n2": {TARGET.ip: (0, None)}}
    world.answer(TARGET.ip, 3 * MS)
    world.answer(TARGET.ip, 9 * MS)  # the same again
    assert world.stats()["n2"][TARGET.ip][0] == 3 * MS


async def test_three_slow_or_lost_probes_in_a_row_are_told_once_and_so_is_the_end() -> None:
    world = World(LatencyMonitor(10.0, 0.005), TARGET)
    await world.round(9 * MS, 9 * MS, MS, 9 * MS, None)
    assert world.said == []
    await world.round(8 * MS, 9 * MS, 9 * MS)
    assert world.said == [
        ("NodeLatencyHigh", "3 probes in a row of Node n2 by 10.10.1.1 were above the threshold of 5.000 ms, the last one: 8.000 ms", True)
    ]  # fmt: skip
    await world.round(MS, MS, 9 * MS, MS, MS)
    assert len(world.said) == 1
    await world.round(2 * MS)
    assert world.said[1:] == [
        ("NodeLatencyNormal", "3 probes in a row of Node n2 by 10.10.1.1 were below the threshold of 5.000 ms again, the last one: 2.000 ms", False)
    ]  # fmt: skip
    await world.round(None, None, None, None)
    assert world.said[2][1].endswith("the last one: no answer")
    assert len(world.said) == 3


def test_without_a_threshold_nothing_is_judged() -> None:
    found = Measurement()
    assert [found.judge(None, 0) for _ in range(9)] == [""] * 9


async def test_a_clock_that_jumps_during_a_round_trip_changes_no_measurement() -> None:
    hour = 3600 * 1000 * MS
    world = World(LatencyMonitor(10.0), TARGET)
    for jump in (hour, -hour):
        await world.prober.probe(world.monitor)
        world.answer(TARGET.ip, jump + MS, lasted=2 * MS)
        assert world.stats()["n2"][TARGET.ip][0] == 2 * MS
    assert (
        'antrea_agent_node_latency_milliseconds_bucket{ip_family="v4",le="2"} 2\n' in world.prober.metrics()
    )
