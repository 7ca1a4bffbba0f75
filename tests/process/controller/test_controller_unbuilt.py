"""The controller's Events about annotations of what is not built: one on each object, however often it is heard of."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from certificate_world import ApiServer, api_server

from antrea.apis import core
from antrea.controller.managed import unbuilt
from antrea.controller.managed.unbuilt import UnbuiltEvents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antrea.outside.kube.client import Kube

POOL = "ipam.antrea.io/ippools"
ADDRESSES = "ipam.antrea.io/pod-ips"


def pod(name: str, **annotations: str) -> core.Pod:
    meta = core.ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}", annotations=annotations)
    return core.Pod(metadata=meta)


@asynccontextmanager
async def telling(kube: Kube) -> AsyncIterator[UnbuiltEvents]:
    events = UnbuiltEvents(kube, pause=0)
    running = asyncio.create_task(events.run())
    yield events
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def told(server: ApiServer) -> list[tuple[str, str, str]]:
    found = [one for path, one in server.objects.items() if "/events/" in path]
    return [(one["involvedObject"]["name"], one["type"], one["message"]) for one in found]


async def until(server: ApiServer, writes: int) -> None:
    async with asyncio.timeout(30):
        while len(server.writes) < writes:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.01)


async def test_an_object_has_one_event_however_often_it_is_heard_of_and_by_whom() -> None:
    async with api_server({}) as (server, kube), telling(kube) as one, telling(kube) as other:
        for events in (one, one, other):
            events.note(pod("plain", note="x"))
            events.note(pod("web", **{POOL: "p"}))
        await until(server, 2)
        assert [(name, kind) for name, kind, _ in told(server)] == [("web", "Warning")]
        assert POOL in told(server)[0][2]
        # another key is another matter
        one.note(pod("web", **{POOL: "p", ADDRESSES: "10.0.0.9"}))
        await until(server, 3)
        assert len(told(server)) == 2
        assert ADDRESSES in told(server)[1][2]


async def test_an_event_waits_for_the_api_server_and_a_refused_one_does_not_come_back() -> None:
    async with api_server({}) as (server, kube), telling(kube) as events:
        server.refuse = "not you"
        events.note(pod("web", **{POOL: "p"}))
        await until(server, 1)
        server.refuse = ""
        events.note(pod("db", **{POOL: "p"}))
        await until(server, 2)
        assert [name for name, *_ in told(server)] == ["db"]


async def test_what_is_remembered_is_bounded() -> None:
    async with api_server({}) as (_, kube):
        events = UnbuiltEvents(kube)
        for number in range(unbuilt.MOST + 10):
            events.note(pod(f"s{number}", **{POOL: "p"}))
        assert (len(events._told), len(events._waiting)) == (unbuilt.MOST, unbuilt.MOST)
