"""Nodes hear how far their Pods have been heard of: of those that are about to start, after what there is to know before."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from antrea.apis import core
from antrea.controller.compute import pod_progress as module
from antrea.controller.compute.pod_progress import PodProgressPublisher
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.facts.cluster import Namespace, Pod, PodFeedProgress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    import pytest


def pod(
    node: str, version: str, *, ip: str = "", namespace: str = "ns", host_network: bool = False
) -> core.Pod:
    meta = core.ObjectMeta(name="a", namespace=namespace, resource_version=version)
    status = core.PodStatus("Running", ip, (core.PodIP(ip),)) if ip else core.PodStatus("Pending")
    return core.Pod(meta, core.PodSpec(node_name=node, host_network=host_network), status)


class World:
    """What is asked of the API server waits for `answers`, and fails as often as there is a reason in `fails`."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.trouble = False
        self.asked: list[set[str]] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.fails: list[str] = []
        self.heard = PodProgressPublisher(self.facts, lambda: self.trouble, self._barrier)

    async def _barrier(self, namespaces: Collection[str]) -> None:
        self.asked.append({*namespaces})
        await self.answers.wait()
        if self.fails:
            raise Unavailable(self.fails.pop())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Callable[[core.Pod], None]]:
        task = asyncio.create_task(self.heard.run())
        try:
            yield self.heard.of(Pod)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def becomes(self, rows: dict[str, int]) -> None:
        async with asyncio.timeout(30):
            while self.rows != rows:  # noqa: ASYNC110 (rows have no event to wait for)
                await asyncio.sleep(0.001)

    @property
    def rows(self) -> dict[str, int]:
        return {row.node: row.version for row in self.facts.all(PodFeedProgress)}


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_node_is_as_far_as_the_newest_of_its_pods_that_have_a_network() -> None:
    world = World()
    async with world.running() as note:
        for found in (
            pod("n1", "9"),
            pod("n1", "7"),
            pod("n2", "3"),
            pod("", "11"),
            pod("n3", "4", host_network=True),
        ):
            note(found)
        assert world.rows == {}, "the rows of these Pods come first"
        await world.becomes({"n1": 9, "n2": 3})
        world.heard.of(Namespace)(core.Namespace())
        note(pod("n1", "12"))
        await world.becomes({"n1": 12, "n2": 3})


async def test_a_pod_that_is_about_to_start_is_heard_once_all_is_that_was_written_before() -> None:
    world = World()
    world.answers.clear()
    async with world.running() as note:
        note(pod("n1", "9"))
        note(pod("n1", "12", ip="10.0.0.1"))
        note(pod("n2", "10", ip="10.0.1.1"))
        await world.becomes({"n2": 10})
        note(pod("n1", "15", ip="10.0.0.1"))
        note(pod("n1", "14", namespace="later"))
        await turns()
        assert (world.rows, world.asked) == ({"n2": 10}, [{"ns"}])
        world.answers.set()
        # who came meanwhile was not part of what was asked
        await world.becomes({"n1": 12, "n2": 10})
        await world.becomes({"n1": 15, "n2": 10})
        assert world.asked == [{"ns"}, {"later"}]


async def test_pods_that_run_ask_nothing_of_the_api_server() -> None:
    world = World()
    async with world.running() as note:
        for number in range(10):
            note(pod("n1", str(number), ip="10.0.0.1"))
            await turns()
        await world.becomes({"n1": 9})
    assert world.asked == []


async def test_many_namespaces_are_asked_for_in_parts_and_a_node_at_once() -> None:
    world = World()
    async with world.running() as note:
        for number in range(40):
            note(pod("n1", "7", namespace=f"a{number}"))
        note(pod("n2", "8", namespace="b"))
        await world.becomes({"n1": 7, "n2": 8})
    assert world.asked == [{f"a{number}" for number in range(40)}, {"b"}]


async def test_without_an_answer_nothing_is_said_and_the_api_server_is_asked_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    world = World()
    world.fails = ["gone", "away"]
    async with world.running() as note:
        note(pod("n1", "9"))
        await world.becomes({"n1": 9})
    assert world.asked == [{"ns"}] * 3
    assert "Could not confirm that policy watches are caught up; new Pods wait" in caplog.text


async def test_while_a_feed_is_interrupted_nothing_is_said() -> None:
    world = World()
    world.trouble = True
    async with world.running() as note:
        note(pod("n1", "9"))
        note(pod("n2", "8", ip="10.0.1.1"))
        await turns()
        assert (world.rows, world.asked) == ({}, [])
        world.trouble = False
        await world.becomes({"n1": 9, "n2": 8})
