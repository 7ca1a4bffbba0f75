"""Whether all has been heard about Pods that start, though no watch says how far it is."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from certificate_world import ApiServer, until
from loopback import client_of

from antrea.controller.abreast import FEW, METADATA, Abreast
from antrea.controller.compute import FEATURES
from antrea.engine import Facts
from antrea.outside.kube_feed import KindFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antrea.facts.fact import Fact

CRD = "/apis/crd.antrea.io/v1beta1"
NATIVE = "/apis/networking.k8s.io/v1"
WATCHED = {one.path: one for feature in FEATURES for one in feature.watched if one.guards}


class Lagging(ApiServer):
    """Its watches tell nothing until `tells` is set; `asked` are the lists for their metadata alone."""

    def __init__(self, objects: dict[str, Any]) -> None:
        super().__init__(objects)
        self.tells = asyncio.Event()
        self.asked: list[tuple[str, str]] = []

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await self.tells.wait()
        elif request.headers["Accept"] == METADATA:
            self.asked.append((request.path, request.query.get("fieldSelector", "")))
            everywhere = request.path.replace("/namespaces/web", "")
            if not any(path.rpartition("/")[0] == everywhere for path in self.objects):
                return web.json_response({"metadata": {"resourceVersion": "1"}, "items": None})
            return self._list(everywhere, request)
        return await super().serve(request)


class World:
    def __init__(self, server: Lagging, abreast: Abreast) -> None:
        self.server = server
        self.abreast = abreast
        self.facts = Facts()

    def names(self, fact: type[Fact]) -> list[str]:
        return [row.key for row in self.facts.all(fact)]


@asynccontextmanager
async def followed(*paths: str) -> AsyncIterator[World]:
    server = Lagging({})
    async with client_of(server.serve) as kube:
        world = World(server, Abreast(kube))
        feeds = []
        for path in paths:
            one = WATCHED[path]
            feed = KindFeed(kube, path, one.kind, fact=one.fact, row=one.row)
            world.abreast.watch(one, feed)
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
        asked = asyncio.create_task(world.abreast.of(["web"]))
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
            await world.abreast.of(["web"])
        world.server.tells.set()
        world.server.put(f"{path}/closed", policy())
        await until(lambda: world.names(WATCHED[path].fact) == ["web/closed"])
        async with asyncio.timeout(30):
            await world.abreast.of(["web"])


async def test_a_policy_that_is_gone_before_its_watch_has_told_of_it_is_not_waited_for_longer() -> None:
    path = f"{NATIVE}/networkpolicies"
    async with followed(path) as world:
        world.server.put(f"{path}/closed", policy())
        asked = asyncio.create_task(world.abreast.of(["web"]))
        await until(lambda: world.server.asked)
        world.server.drop(f"{path}/closed")
        world.server.tells.set()
        await asked
        assert world.names(WATCHED[path].fact) == []


async def test_lists_are_of_all_that_can_say_something_about_a_pod() -> None:
    async with followed(*WATCHED) as world:
        await world.abreast.of(["web"])
        assert sorted(world.server.asked) == [
            ("/api/v1/namespaces", ""),
            (f"{CRD}/clustergroups", ""),
            (f"{CRD}/clusternetworkpolicies", ""),
            (f"{CRD}/groups", ""),
            (f"{CRD}/networkpolicies", ""),
            (f"{CRD}/tiers", ""),
            (f"{NATIVE}/networkpolicies", ""),
        ]


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
        await world.abreast.of(["web"])
        await world.abreast.of(["web", "db"])
        assert sorted(world.server.asked) == [
            (spaces, ""),
            (spaces, "metadata.name=web"),
            (f"{NATIVE}/namespaces/web/networkpolicies", ""),
            (policies, ""),
        ]
