"""Nodes hear how far their Pods have been heard of, and nothing while a feed is interrupted."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from antrea.apis import core
from antrea.controller.heard import Heard
from antrea.engine import Facts
from antrea.facts.cluster import Namespace, NodeHeard, Pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def pod(node: str, version: str, *, host_network: bool = False) -> core.Pod:
    meta = core.ObjectMeta(name="a", namespace="ns", resource_version=version)
    return core.Pod(meta, core.PodSpec(node_name=node, host_network=host_network))


@asynccontextmanager
async def running(heard: Heard) -> AsyncIterator[None]:
    task = asyncio.create_task(heard.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def rows(facts: Facts) -> dict[str, int]:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return {row.node: row.version for row in facts.all(NodeHeard)}


async def test_a_node_is_as_far_as_the_newest_of_its_pods_that_have_a_network() -> None:
    facts = Facts()
    heard = Heard(facts, lambda: False)
    note = heard.of(Pod)
    async with running(heard):
        for found in (
            pod("n1", "9"),
            pod("n1", "7"),
            pod("n2", "3"),
            pod("", "11"),
            pod("n3", "4", host_network=True),
        ):
            note(found)
        assert not facts.all(NodeHeard), "the rows of these Pods come first"
        assert await rows(facts) == {"n1": 9, "n2": 3}
        heard.of(Namespace)(core.Namespace())
        note(pod("n1", "12"))
        assert await rows(facts) == {"n1": 12, "n2": 3}


async def test_while_a_feed_is_interrupted_nothing_is_said() -> None:
    facts, trouble = Facts(), [True]
    heard = Heard(facts, lambda: trouble[0])
    async with running(heard):
        heard.note(pod("n1", "9"))
        assert await rows(facts) == {}
        trouble[0] = False
        told = asyncio.Event()
        facts.listeners.append(told.set)
        async with asyncio.timeout(5):
            await told.wait()
        assert await rows(facts) == {"n1": 9}
