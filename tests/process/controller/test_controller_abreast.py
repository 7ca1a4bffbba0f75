"""Whether all has been heard about Pods that start, though no watch says how far it is."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from certificate_world import ApiServer, until
from loopback import client_of

from antrea.controller.compute.runtime import FEATURES
from antrea.controller.compute.watch_barrier import FEW, WatchBarrier
from antrea.engine import Facts
from antrea.errors import Refused
from antrea.outside.kube.client import METADATA_LIST
from antrea.outside.kube.resource_feed import ResourceFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antrea.facts.fact import Fact

CRD = "/apis/crd.antrea.io/v1beta1"
NATIVE = "/apis/networking.k8s.io/v1"
ADMIN = "/apis/policy.networking.k8s.io"
WATCHED = {one.path: one for feature in FEATURES for one in feature.watched if one.guards}


class Lagging(ApiServer):
    """Its watches tell nothing until `tells` is set; `asked` are the lists for their metadata alone."""

    def __init__(self, objects: dict[str, Any]) -> None:
        super().__init__(objects)
        self.tells = asyncio.Event()
        self.asked: list[tuple[str, str]] = []
        self.unknown: set[str] = set()
        """Collections that it has not."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await self.tells.wait()
        elif request.headers["Accept"] == METADATA_LIST:
            self.asked.append((request.path, request.query.get("fieldSelector", "")))
            if request.path in self.unknown:
                return web.json_response({"message": "not found"}, status=404)
            everywhere = request.path.replace("/namespaces/web", "")
            if not any(path.rpartition("/")[0] == everywhere for path in self.objects):
                return web.json_response({"metadata": {"resourceVersion": "1"}, "items": None})
            return self._list(everywhere, request)
        return await super().serve(request)


class World:
    def __init__(self, server: Lagging, barrier: WatchBarrier) -> None:
        self.server = server
        self.barrier = barrier
        self.facts = Facts()

    def names(self, fact: type[Fact]) -> list[str]:
        return [row.key for row in self.facts.all(fact)]


@asynccontextmanager
async def followed(*paths: str) -> AsyncIterator[World]:
    server = Lagging({})
    async with client_of(server.serve) as kube:
        world = World(server, WatchBarrier(kube))
        feeds = []
        for path in paths:
            one = WATCHED[path]
            feed = ResourceFeed(kube, path, one.kind, rows={one.fact: one.row})
            world.barrier.watch(one, feed)
            feeds.append(asyncio.create_task(feed.run(world.facts)))
        await until(lambda: all(world.facts.feeds.has(WATCHED[path].fact) for path in paths))
        yield world
        for task in feeds:
            task.cancel()
        await asyncio.gather(*feeds, return_exceptions=True)


def policy(**more: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "web", "uid": "u"}, "spec": {"podSelector": {}}, **more}


async def test_a_policy_that_was_written_before_is_waited_for_until_its_watch_has_told_it() -> None:
    path = f"{NATIVE}/networkpolicies"
    async with followed(path) as world:
        world.server.put(f"{path}/closed", policy())
        asked = asyncio.create_task(world.barrier.wait(["web"]))
        await until(lambda: world.server.asked)
        await asyncio.sleep(0.1)
        assert (world.names(WATCHED[path].fact), asked.done()) == ([], False)
        world.server.tells.set()
        await asked
        assert world.names(WATCHED[path].fact) == ["web/closed"]


async def test_what_is_known_already_is_not_waited_for() -> None:
    path = f"{NATIVE}/networkpolicies"
    async with followed(path) as world:
        async with asyncio.timeout(30):
            await world.barrier.wait(["web"])
        world.server.tells.set()
        world.server.put(f"{path}/closed", policy())
        await until(lambda: world.names(WATCHED[path].fact) == ["web/closed"])
        async with asyncio.timeout(30):
            await world.barrier.wait(["web"])


async def test_a_policy_that_is_gone_before_its_watch_has_told_of_it_is_not_waited_for_longer() -> None:
    path = f"{NATIVE}/networkpolicies"
    async with followed(path) as world:
        world.server.put(f"{path}/closed", policy())
        asked = asyncio.create_task(world.barrier.wait(["web"]))
        await until(lambda: world.server.asked)
        world.server.drop(f"{path}/closed")
        world.server.tells.set()
        await asked
        assert world.names(WATCHED[path].fact) == []


async def test_lists_are_of_all_that_can_say_something_about_a_pod() -> None:
    async with followed(*WATCHED) as world:
        await world.barrier.wait(["web"])
        assert sorted(world.server.asked) == [
            ("/api/v1/namespaces", ""),
            (f"{CRD}/clustergroups", ""),
            (f"{CRD}/clusternetworkpolicies", ""),
            (f"{CRD}/groups", ""),
            (f"{CRD}/networkpolicies", ""),
            (f"{CRD}/tiers", ""),
            (f"{NATIVE}/networkpolicies", ""),
            (f"{ADMIN}/v1alpha1/adminnetworkpolicies", ""),
            (f"{ADMIN}/v1alpha1/baselineadminnetworkpolicies", ""),
            (f"{ADMIN}/v1alpha2/clusternetworkpolicies", ""),
        ]


async def test_a_kind_that_the_cluster_lacks_and_may_lack_is_not_waited_for() -> None:
    policies, namespaces = f"{ADMIN}/v1alpha2/clusternetworkpolicies", "/api/v1/namespaces"
    async with followed(policies, namespaces) as world:
        world.server.unknown.add(policies)
        async with asyncio.timeout(30):
            await world.barrier.wait(["web"])
        assert (policies, "") in world.server.asked
        world.server.unknown.add(namespaces)
        with pytest.raises(Refused):
            await world.barrier.wait(["web"])


async def test_where_there_are_many_only_what_concerns_the_namespaces_of_these_pods_is_listed() -> None:
    spaces, policies = "/api/v1/namespaces", f"{NATIVE}/networkpolicies"
    async with followed(spaces, policies) as world:
        world.server.tells.set()
        for number in range(FEW + 1):
            world.server.put(f"{spaces}/n{number}", {})
            world.server.put(f"{policies}/p{number}", policy())
        await until(
            lambda: all(len(world.facts.all(WATCHED[path].fact)) > FEW for path in (spaces, policies))
        )
        await world.barrier.wait(["web"])
        await world.barrier.wait(["web", "db"])
        assert sorted(world.server.asked) == [
            (spaces, ""),
            (spaces, "metadata.name=web"),
            (f"{NATIVE}/namespaces/web/networkpolicies", ""),
            (policies, ""),
        ]
