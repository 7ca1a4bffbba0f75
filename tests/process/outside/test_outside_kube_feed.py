"""One resource of kube-apiserver as rows of facts, against a scripted server on loopback."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from loopback import answering

from antrea.apis.core import Node
from antrea.engine import Facts
from antrea.facts.fact import Fact
from antrea.facts.node import PeerNode
from antrea.outside.kube.access import Access
from antrea.outside.kube.client import Kube
from antrea.outside.kube.resource_feed import ResourceFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


def row(node: Node) -> PeerNode | None:
    if not node.spec.pod_cidrs:
        return None
    return PeerNode(node.metadata.name, node.spec.pod_cidrs, (), ())


def node(name: str, version: str, *cidrs: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}, "spec": {"podCIDRs": cidrs}}


class Cluster:
    """Answers lists with `nodes` and watches with what is put into `events`; `down` refuses all."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.down = False
        self.forbidden = False
        self.unknown = False
        """Whether the API server has no such kind."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if self.down:
            return web.json_response({"message": "shutting down"}, status=503)
        if self.forbidden:
            why = 'nodes is forbidden: User "agent" cannot list resource "nodes" in API group ""'
            return web.json_response({"message": why}, status=403)
        if self.unknown:
            return web.json_response({"message": "the server could not find it"}, status=404)
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "10"}, "items": self.nodes})
        response = web.StreamResponse()
        await response.prepare(request)
        while (event := await self.events.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    def happens(self, kind: str, what: dict[str, Any]) -> None:
        self.events.put_nowait({"type": kind, "object": what})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (rows have no event to wait for)
            await asyncio.sleep(0.005)


@asynccontextmanager
async def fed(
    cluster: Cluster,
    row: Callable[[Node], PeerNode | tuple[PeerNode, ...] | None] = row,
    *before: PeerNode,
    optional: bool = False,
) -> AsyncIterator[tuple[Facts, ResourceFeed[Node]]]:
    """Facts that a feed of the cluster's Nodes writes; `before` are there already."""
    facts = Facts()
    for peer in before:
        facts.put(peer)
    async with answering(cluster.serve) as url, Kube(Access(url), chance=lambda *_: 0.01) as kube:
        feed = ResourceFeed(kube, "/api/v1/nodes", Node, rows={PeerNode: row}, optional=optional)
        running = asyncio.create_task(feed.run(facts))
        yield facts, feed
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_kube_feed_rows_follow_the_objects_and_a_row_that_is_none_drops_the_one_before() -> None:
    cluster = Cluster()
    cluster.nodes = [node("a", "1", "10.1.0.0/24"), node("b", "2", "10.2.0.0/24"), node("bare", "3")]
    left = PeerNode("left by the feed before", (), (), ())
    async with fed(cluster, row, left) as (facts, feed):

        def names() -> list[str]:
            return [peer.name for peer in facts.all(PeerNode)]

        await until(lambda: names() == ["a", "b"] and PeerNode in facts.feeds.synced | facts.feeds.marked)
        cluster.happens("ADDED", node("c", "11", "10.3.0.0/24"))
        cluster.happens("MODIFIED", node("bare", "12", "10.4.0.0/24"))
        cluster.happens("MODIFIED", node("a", "13"))
        cluster.happens("DELETED", node("b", "14", "10.2.0.0/24"))
        cluster.happens("DELETED", node("never seen", "15"))
        await until(lambda: names() == ["bare", "c"])

        cluster.down = True
        cluster.events.put_nowait(None)
        await until(lambda: feed.trouble == "shutting down")
        assert names() == ["bare", "c"]
        assert PeerNode not in facts.feeds.synced | facts.feeds.marked
        cluster.down = False
        cluster.happens("BOOKMARK", node("", "16"))
        await until(lambda: feed.trouble == "")
        assert PeerNode in facts.feeds.synced | facts.feeds.marked


async def test_an_object_may_give_several_rows_which_come_and_go_with_what_it_says() -> None:
    def rows(found: Node) -> tuple[PeerNode, ...]:
        return tuple(PeerNode(f"{found.metadata.name} {cidr}", (), (), ()) for cidr in found.spec.pod_cidrs)

    cluster = Cluster()
    cluster.nodes = [node("a", "1", "10.1.0.0/24", "10.2.0.0/24"), node("b", "2")]
    left = PeerNode("a 10.9.0.0/24", (), (), ())
    async with fed(cluster, rows, left) as (facts, _):

        def names() -> list[str]:
            return [peer.name for peer in facts.all(PeerNode)]

        await until(lambda: names() == ["a 10.1.0.0/24", "a 10.2.0.0/24"])
        cluster.happens("MODIFIED", node("a", "11", "10.2.0.0/24", "10.3.0.0/24"))
        await until(lambda: names() == ["a 10.2.0.0/24", "a 10.3.0.0/24"])
        cluster.happens("MODIFIED", node("b", "12", "10.4.0.0/24"))
        cluster.happens("DELETED", node("a", "13", "10.2.0.0/24", "10.3.0.0/24"))
        await until(lambda: names() == ["b 10.4.0.0/24"])


class Pages(Cluster):
    """Answers a list page by page; `gone` is the number of tokens that it forgets first."""

    def __init__(self, *pages: list[dict[str, Any]], gone: int = 0) -> None:
        super().__init__()
        self.pages = list(pages)
        self.gone = gone
        self.lists = 0

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await super().serve(request)
        place = int(request.query.get("continue", 0))
        if place and self.gone:
            self.gone -= 1
            return web.json_response({"code": 410, "message": "expired"}, status=410)
        self.lists += not place
        more = str(place + 1) if place + 1 < len(self.pages) else ""
        meta = {"resourceVersion": "10", "continue": more}
        return web.json_response({"metadata": meta, "items": self.pages[place]})


def renamed(node: Node) -> PeerNode | None:
    """A row whose key is not the object's name: the first of its Pod CIDRs."""
    return PeerNode(node.spec.pod_cidrs[0], (), (), ()) if node.spec.pod_cidrs else None


async def test_kube_feed_a_list_that_expires_between_pages_begins_again_and_ends_whole() -> None:
    cluster = Pages([node("a", "1", "k1")], [node("b", "2", "k2")], gone=1)
    async with fed(cluster, renamed) as (facts, _):
        await until(lambda: facts.feeds.has(PeerNode))
        assert [peer.name for peer in facts.all(PeerNode)] == ["k1", "k2"]
    assert cluster.lists == 2


async def test_kube_feed_a_new_list_moves_rows_between_objects_and_drops_only_what_nobody_has() -> None:
    cluster = Pages([node("a", "1", "k1")], [node("b", "2", "k2"), node("c", "3", "k3")])
    async with fed(cluster, renamed) as (facts, _):
        await until(lambda: facts.feeds.has(PeerNode))
        # a takes the row that b had, b a new one, c is gone
        cluster.pages = [[node("a", "11", "k2")], [node("b", "12", "k4")]]
        cluster.happens("ERROR", {"code": 410, "message": "too old resource version"})
        cluster.events.put_nowait(None)
        await until(lambda: cluster.lists == 2)
        await until(lambda: [peer.name for peer in facts.all(PeerNode)] == ["k2", "k4"])
        cluster.happens("DELETED", node("a", "21", "k2"))
        await until(lambda: [peer.name for peer in facts.all(PeerNode)] == ["k4"])


class HeldPages(Pages):
    """Gives a second page only once `go_on` is set."""

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        super().__init__(*pages)
        self.go_on = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if "continue" in request.query:
            await self.go_on.wait()
        return await super().serve(request)


async def test_kube_feed_rows_of_an_object_change_at_once_in_a_new_list_as_in_a_watch() -> None:
    def rows(found: Node) -> tuple[PeerNode, ...]:
        return tuple(PeerNode(f"{found.metadata.name} {cidr}", (), (), ()) for cidr in found.spec.pod_cidrs)

    cluster = HeldPages([node("a", "1", "k1", "k2")], [node("b", "2", "k3"), node("c", "3", "k4")])
    cluster.go_on.set()
    async with fed(cluster, rows) as (facts, _):

        def names() -> list[str]:
            return [peer.name for peer in facts.all(PeerNode)]

        await until(lambda: facts.feeds.has(PeerNode))
        cluster.go_on.clear()
        cluster.pages = [[node("a", "11", "k2", "k5")], [node("b", "2", "k3")]]
        cluster.happens("ERROR", {"code": 410, "message": "too old resource version"})
        cluster.events.put_nowait(None)
        await until(lambda: "a k5" in names())
        assert names() == ["a k2", "a k5", "b k3", "c k4"]
        cluster.go_on.set()
        await until(lambda: names() == ["a k2", "a k5", "b k3"])


async def test_a_kind_that_may_be_missing_has_no_objects_until_it_is_there() -> None:
    cluster = Cluster()
    cluster.nodes, cluster.unknown = [node("a", "1", "10.1.0.0/24")], True
    async with fed(cluster, optional=True) as (facts, feed):
        await until(lambda: PeerNode in facts.feeds.synced | facts.feeds.marked)
        assert (feed.trouble, facts.all(PeerNode)) == ("", [])
        cluster.unknown = False
        await until(lambda: [peer.name for peer in facts.all(PeerNode)] == ["a"])
        cluster.unknown = True
        cluster.events.put_nowait({"type": "ERROR", "object": {"code": 410, "message": "gone"}})
        await until(lambda: not facts.all(PeerNode))
        assert feed.trouble == ""


async def test_a_kind_that_must_be_there_is_missed() -> None:
    cluster = Cluster()
    cluster.unknown = True
    async with fed(cluster) as (facts, feed):
        await until(lambda: feed.trouble == "the server could not find it")
        assert PeerNode not in facts.feeds.synced | facts.feeds.marked


class NodeVersion(Fact, frozen=True):
    name: str
    version: str

    @property
    def key(self) -> str:
        return self.name


async def test_one_watch_writes_several_kinds_and_one_that_cannot_be_made_leaves_the_others_alone() -> None:
    def version(found: Node) -> NodeVersion:
        if found.spec.pod_cidrs[0] == "bad":
            raise ValueError("not for this one")
        return NodeVersion(found.metadata.name, found.metadata.resource_version)

    cluster, facts = Cluster(), Facts()
    cluster.nodes = [node("a", "1", "10.1.0.0/24"), node("b", "2", "10.2.0.0/24")]
    lists: list[str] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        lists.append(str(request.rel_url))
        return await cluster.serve(request)

    async with answering(serve) as url, Kube(Access(url), chance=lambda *_: 0.01) as kube:
        feed = ResourceFeed(kube, "/api/v1/nodes", Node, rows={PeerNode: row, NodeVersion: version})
        running = asyncio.create_task(feed.run(facts))

        def rows() -> dict[str, tuple[str, str]]:
            cidrs = {peer.name: peer.pod_cidrs[0] for peer in facts.all(PeerNode)}
            versions = {one.name: one.version for one in facts.all(NodeVersion)}
            return {name: (cidrs.get(name, ""), versions.get(name, "")) for name in cidrs | versions}

        await until(lambda: {PeerNode, NodeVersion} <= facts.feeds.synced | facts.feeds.marked)
        assert rows() == {"a": ("10.1.0.0/24", "1"), "b": ("10.2.0.0/24", "2")}
        cluster.happens("MODIFIED", node("a", "11", "bad"))
        cluster.happens("DELETED", node("b", "12", "10.2.0.0/24"))
        await until(lambda: rows() == {"a": ("bad", "1")})
        assert "/a" in feed.odd
        cluster.happens("MODIFIED", node("a", "13", "10.3.0.0/24"))
        await until(lambda: rows() == {"a": ("10.3.0.0/24", "13")})
        assert "/a" not in feed.odd
        assert len(lists) == 2, "one list and one watch"
        cluster.down = True
        cluster.events.put_nowait(None)
        await until(lambda: not {PeerNode, NodeVersion} & (facts.feeds.synced | facts.feeds.marked))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_feed_says_which_right_is_missing_until_it_is_given() -> None:
    cluster = Cluster()
    cluster.forbidden = True
    async with fed(cluster) as (facts, _):
        await until(lambda: bool(facts.feeds.refused()))
        assert list(facts.feeds.refused()) == ["nodes"]
        assert "cannot list resource" in facts.feeds.refused()["nodes"]
        cluster.forbidden, cluster.down = False, True
        await until(lambda: not facts.feeds.refused())
