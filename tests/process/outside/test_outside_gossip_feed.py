"""Gossip with real sockets on loopback, in its own thread: agents find each other, die, and free what they held."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
from free_port import free_port

from antrea.engine import Facts
from antrea.facts.member import AgentNode, GossipMember, Quorum, SilenceReport
from antrea.outside.gossip import feed
from antrea.outside.gossip.feed import GossipFeed
from antrea.outside.gossip.stream import INCOMING
from antrea.outside.gossip.suspicion import Timing
from antrea.outside.gossip.transport import now

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = os.urandom(32)
MAX_SUSPICION_SECONDS = Timing().suspicion_most
"""A suspicion lasts no longer."""
DEATH_SECONDS = MAX_SUSPICION_SECONDS + 2 * Timing().period
"""It takes no longer to find a death."""


class Agents:
    """Feeds of several Nodes in this process, each with facts of its own."""

    def __init__(self, count: int, *, ipv6: bool = False) -> None:
        self.port = free_port()
        # every Node has an address of its own: of IPv6, loopback has only one
        assert count == 1 or not ipv6
        self.nodes = [
            AgentNode(f"node-{n}", (ip := "::1" if ipv6 else f"127.0.77.{n}",), (ip,))
            for n in range(1, count + 1)
        ]
        self.facts: dict[str, Facts] = {}
        self.feeds: dict[str, GossipFeed] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str) -> None:
        node = next(node for node in self.nodes if node.name == name)
        facts, one = Facts(), GossipFeed(name, node.transport_ips[0], self.port)
        for row in self.nodes:
            facts.put(row)
        facts.synced(AgentNode)
        one.keys([KEY])
        self.facts[name], self.feeds[name] = facts, one
        self.tasks[name] = asyncio.create_task(one.run(facts))

    async def stop(self, name: str) -> None:
        self.tasks[name].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.tasks.pop(name)

    def living(self, name: str) -> set[str]:
        return {row.node for row in self.facts[name].all(GossipMember) if row.alive}


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (real sockets tell nobody)
            await asyncio.sleep(0.02)


async def test_gossip_feed_waits_for_a_member_that_is_back_in_a_moment_while_its_kernel_refuses_connections() -> (
    None
):
    agents = Agents(3)
    names = [node.name for node in agents.nodes]
    for name in names:
        agents.start(name)
    await until(lambda: all(agents.living(name) == set(names) - {name} for name in names))
    gossips = [agents.feeds[name].gossip for name in names[:2]]
    agents.feeds["node-3"].return_soon()
    await until(lambda: all(one and "node-3" in one.machine.swim.bfd.away for one in gossips))
    await agents.stop("node-3")

    def is_silent_for_long() -> bool:
        rows = [one.machine.swim.rows["node-3"] for one in gossips if one]
        return all(row.suspicion and now() > row.suspicion.since + 2 * MAX_SUSPICION_SECONDS for row in rows)

    await until(is_silent_for_long)
    assert all("node-3" in agents.living(name) for name in names[:2])
    agents.start("node-3")
    await until(lambda: agents.living("node-3") == {"node-1", "node-2"})
    for name in names:
        await agents.stop(name)


async def test_gossip_feed_tells_of_members_that_live_and_die_and_of_the_majority() -> None:
    agents = Agents(3)
    names = [node.name for node in agents.nodes]
    for name in names:
        agents.start(name)
    await until(lambda: all(agents.living(name) == set(names) - {name} for name in names))
    await until(lambda: agents.facts["node-1"].get(Quorum) == Quorum(has=True, alive=3, of=3))
    assert agents.facts["node-1"].feeds.has(GossipMember)
    await agents.stop("node-3")
    await until(lambda: agents.living("node-1") == {"node-2"})
    dead = agents.facts["node-1"].get(GossipMember, "node-3")
    assert dead == GossipMember("node-3", alive=False, why=dead.why if dead else "")
    await until(lambda: agents.facts["node-1"].get(Quorum) == Quorum(has=True, alive=2, of=3))
    await agents.stop("node-2")
    await until(lambda: agents.facts["node-1"].get(Quorum) == Quorum(has=False, alive=1, of=3))
    agents.start("node-2")
    await until(lambda: agents.facts["node-1"].get(Quorum) == Quorum(has=True, alive=2, of=3))
    agents.facts["node-1"].drop(AgentNode, "node-3")
    await until(lambda: agents.facts["node-1"].get(GossipMember, "node-3") is None)
    await until(lambda: agents.facts["node-1"].get(Quorum) == Quorum(has=True, alive=2, of=2))
    for name in list(agents.tasks):
        await agents.stop(name)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("gossip")] == []


async def test_gossip_feed_has_what_others_report_of_silent_networks_also_from_before_it_ran() -> None:
    agents = Agents(3)
    names = [node.name for node in agents.nodes]
    networks = ("192.0.2.0/24", "2001:db8::/64")
    for name in names[:2]:
        agents.start(name)
        agents.feeds[name].report_silence(networks if name == "node-2" else ())
    one = agents.facts["node-1"]
    await until(lambda: one.get(SilenceReport, "node-2") == SilenceReport("node-2", networks))
    agents.start("node-3")
    await until(
        lambda: agents.facts["node-3"].get(SilenceReport, "node-2") == SilenceReport("node-2", networks)
    )
    agents.feeds["node-2"].report_silence(())
    await until(lambda: one.get(SilenceReport, "node-2") == SilenceReport("node-2", ()))
    one.drop(AgentNode, "node-2")
    await until(lambda: one.get(SilenceReport, "node-2") is None)
    for name in names:
        await agents.stop(name)


async def test_gossip_feed_knows_for_a_while_who_said_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LEFT_SECONDS", 0.5)
    agents = Agents(3)
    for node in agents.nodes:
        agents.start(node.name)
    await until(lambda: all(len(agents.living(node.name)) == 2 for node in agents.nodes))
    left = GossipMember("node-3", alive=False, left=True, why="says goodbye")
    others = [agents.facts[name] for name in ("node-1", "node-2")]
    told: list[GossipMember | None] = []
    for facts in others:
        facts.listeners.append(lambda: told.extend(rows(others)))
    agents.feeds["node-3"].leave()
    await until(lambda: left in told)
    await until(lambda: all(row and not row.alive and not row.left for row in rows(others)))
    assert agents.living("node-3") == {"node-1", "node-2"}
    await agents.stop("node-3")
    agents.start("node-3")
    await until(lambda: all(len(agents.living(node.name)) == 2 for node in agents.nodes))
    for name in list(agents.tasks):
        await agents.stop(name)


def rows(facts: list[Facts]) -> list[GossipMember | None]:
    return [one.get(GossipMember, "node-3") for one in facts]


async def test_gossip_feed_goes_on_while_the_agents_loop_is_held() -> None:
    agents = Agents(2)
    for node in agents.nodes:
        agents.start(node.name)
    await until(lambda: agents.living("node-1") == {"node-2"})
    time.sleep(DEATH_SECONDS)  # noqa: ASYNC251 (what the test is about)
    # what came while the loop was held is in the facts after one run of it
    await asyncio.sleep(0)
    await until(lambda: agents.living("node-2") == {"node-1"})
    assert [agents.feeds[node.name].deaths for node in agents.nodes] == [0, 0]
    for name in list(agents.tasks):
        await agents.stop(name)


@pytest.mark.parametrize("ipv6", [False, True])
async def test_gossip_feed_alone_is_its_own_majority(*, ipv6: bool) -> None:
    agents = Agents(1, ipv6=ipv6)
    agents.start("node-1")
    await until(lambda: agents.facts["node-1"].get(Quorum) == Quorum(has=True, alive=1, of=1))
    await agents.stop("node-1")


async def test_gossip_feed_waits_for_a_port_that_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feed, "RETRY_SECONDS", 0.05)
    agents = Agents(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.77.1", agents.port))
        agents.start("node-1")
        await until(lambda: caplog.text.count("Gossip cannot start") >= 5)
        assert agents.facts["node-1"].get(Quorum) is None
    await until(lambda: agents.facts["node-1"].get(Quorum) == Quorum(has=True, alive=1, of=1))
    await agents.stop("node-1")


async def test_gossip_feed_stands_garbage_and_silence_on_both_sockets() -> None:
    agents = Agents(2)
    place = ("127.0.77.1", agents.port)
    for node in agents.nodes:
        agents.start(node.name)
    await until(lambda: agents.living("node-1") == {"node-2"})
    with contextlib.ExitStack() as last:
        udp = last.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        for size in (0, 1, 16, 17, 33, 60, 1232, 9000):
            udp.sendto(bytes([0x13]) * size, place)
        silent = [last.enter_context(socket.create_connection(place)) for _ in range(2 * INCOMING.new)]
        silent[-1].sendall(b"\xff" * 100)
        silent[-2].sendall((60).to_bytes(4, "big") + b"\x11" * 60)
        gossip = agents.feeds["node-1"].gossip
        assert gossip
        streams = gossip._streams
        await until(lambda: streams.rejected >= INCOMING.new)
        # as many as come in 3 s, which is longer than it takes to find a death
        before = gossip.received
        await until(lambda: gossip.received >= before + 20)
        assert agents.living("node-1") == {"node-2"}
        assert agents.feeds["node-1"].deaths == 0
        dropped = gossip.machine.channels.dropped
        await until(lambda: dropped["garbled"] + dropped["unknown channel"] >= 8)
    for name in list(agents.tasks):
        await agents.stop(name)
