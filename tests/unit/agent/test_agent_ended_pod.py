"""Connections of an address are forgotten when its Pod ends and when another one gets it, and those of no other address."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_world import interface

from antrea.engine import Engine, Facts, Unit
from antrea.errors import Unavailable
from antrea.facts.ovs import PodInterface
from antrea.features.network_policy.agent.feature import tracked_pod_addresses
from antrea.features.network_policy.agent_part.ended_pod import EndedPodConnections
from antrea.host.pod_tracking import TrackedPodAddress
from antrea.outside.vswitch.conntrack import Tracked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WEB = interface("web", 7, "10.10.0.7", "fd00:10::7")
NEXT = interface("next", 8, "10.10.0.7", "fd00:10::7")
OTHER = interface("other", 9, "10.10.0.9")


def connection(source: str, to: str, server: str = "") -> Tracked:
    return Tracked(65510 if ":" in to else 65520, "udp", source, to, 40000, 53, (0, 0, 0), server or to, 53)


INTO, OUT, SERVICE, SIX, FAR = (
    connection("10.10.1.5", "10.10.0.7"),
    connection("10.10.0.7", "203.0.113.9"),
    connection("10.10.1.5", "10.96.0.1", "10.10.0.7"),
    connection("fd00:10:1::5", "fd00:10::7"),
    connection("10.10.1.5", "10.10.0.9"),
)


class Datapath:
    """Tracks these connections; is away for so many questions."""

    def __init__(self, away: int = 0) -> None:
        self.standing = [INTO, OUT, SERVICE, SIX, FAR]
        self.away = away

    async def connections(self, zone: int) -> list[Tracked]:
        self.away -= 1
        if self.away >= 0:
            raise Unavailable("control socket of ovs-vswitchd")
        return [one for one in self.standing if one.zone == zone]

    async def forget(self, found: list[Tracked]) -> None:
        self.standing = [one for one in self.standing if one not in found]


@contextlib.asynccontextmanager
async def running(datapath: Datapath) -> AsyncIterator[tuple[Facts, Engine]]:
    facts, sink = Facts(), EndedPodConnections(datapath, pause=0.01)
    for row in (WEB, OTHER):
        facts.put(row)
    engine = Engine(facts, [Unit(PodInterface, tracked_pod_addresses)], {TrackedPodAddress: sink})
    async with asyncio.TaskGroup() as tasks:
        work = [tasks.create_task(engine.run()), tasks.create_task(sink.run(engine))]
        await engine.quiet()
        yield facts, engine
        for task in work:
            task.cancel()


async def standing(datapath: Datapath, wanted: list[Tracked]) -> None:
    async with asyncio.timeout(10):
        while datapath.standing != wanted:  # noqa: ASYNC110 (the sink has no news of its work)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("away", [0, 3])
async def test_they_go_with_the_pod_and_again_with_the_next_one(away: int) -> None:
    datapath = Datapath(away)
    async with running(datapath) as (facts, engine):
        assert datapath.standing == [INTO, OUT, SERVICE, SIX, FAR], "a Pod that begins keeps what it has"
        facts.drop(PodInterface, WEB.key)
        await standing(datapath, [FAR])
        datapath.standing.append(INTO)  # a client went on before there was the next Pod
        facts.put(NEXT)
        await standing(datapath, [FAR])
        datapath.standing.append(INTO)
        facts.put(msgspec.structs.replace(OTHER, mac="0a:00:00:00:00:99"))
        await standing(datapath, [INTO])
        assert not engine.errors.counts


async def test_they_go_where_the_next_pod_comes_before_the_first_has_gone() -> None:
    datapath = Datapath()
    async with running(datapath) as (facts, engine):
        facts.put(NEXT)
        await engine.quiet()
        assert INTO in datapath.standing
        facts.drop(PodInterface, WEB.key)
        await standing(datapath, [FAR])
        assert not engine.errors.counts
