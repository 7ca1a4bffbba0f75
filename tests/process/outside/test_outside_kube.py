"""List and watch, patches and Events against a server on loopback that plays a script."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from loopback import answering, client_of

from antrea import VERSION
from antrea.apis.core import Node, ObjectMeta, ObjectReference
from antrea.errors import Refused, Unavailable
from antrea.outside.kube.access import Access
from antrea.outside.kube.answer import Listed
from antrea.outside.kube.client import NO_QUERY, Kube, PatchKind

NODES = "/api/v1/nodes"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers each request with the next step of its script and remembers what was asked."""

    def __init__(self, steps: list[Handler]) -> None:
        self.steps = steps
        self.asked: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.finished = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        self.bodies.append(await request.read())
        if not self.steps:
            self.finished.set()
            await asyncio.Event().wait()
        return await self.steps.pop(0)(request)


@asynccontextmanager
async def played(
    *steps: Handler, token: str = "", now: Callable[[], float] = time.monotonic
) -> AsyncIterator[tuple[Kube, Server, list[float]]]:
    """A client of a server that plays `steps`, and the pauses that the client made instead of sleeping."""
    server = Server(list(steps))
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async with (
        answering(server.serve) as url,
        Kube(Access(url, token=token), sleep=sleep, chance=lambda low, _: low, now=now) as kube,
    ):
        yield kube, server, pauses


def node(name: str, version: str = "1", cidr: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "resourceVersion": version, "managedFields": [{"a": "b" * 50}]},
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr] if cidr else []},
        "status": {"images": [{"names": ["x"]}]},
    }


def answer(body: Any, status: int = 200) -> Handler:
    async def step(_: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    return step


def page(*nodes: dict[str, Any], version: str = "10", more: str = "") -> Handler:
    return answer({"metadata": {"resourceVersion": version, "continue": more}, "items": list(nodes)})


def failure(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "message": message, "code": code}


def stream(*events: tuple[str, dict[str, Any]], cut: bool = False, split: int = 0) -> Handler:
    """A watch that sends `events`, in chunks of `split` bytes, and ends; `cut` breaks the connection."""

    async def step(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        data = b"".join(json.dumps({"type": t, "object": o}).encode() + b"\n" for t, o in events)
        for start in range(0, len(data), split or max(1, len(data))):
            await response.write(data[start : start + (split or len(data))])
            await asyncio.sleep(0)
        if cut and request.transport:
            request.transport.abort()
        return response

    return step


async def take(kube: Kube, number: int, query: Mapping[str, str] = NO_QUERY) -> list[Any]:
    changes = kube.watch(NODES, Node, query)
    try:
        return [await asyncio.wait_for(anext(changes), 30) for _ in range(number)]
    finally:
        await changes.aclose()  # type: ignore[attr-defined]


def names(changes: list[Any]) -> list[Any]:
    return [
        ("listed", [n.metadata.name for n in c.objects])
        if isinstance(c, Listed)
        else (type(c).__name__, c.object.metadata.name)
        for c in changes
    ]


async def test_kube_a_watch_starts_with_all_pages_and_goes_on_where_the_list_ended() -> None:
    async with played(
        page(node("a"), version="10", more="token2"),
        page(node("b", cidr="10.1.0.0/24"), version="10"),
        stream(("ADDED", node("c", "11")), ("MODIFIED", node("a", "12")), ("DELETED", node("b", "13"))),
    ) as (kube, server, pauses):
        changes = await take(kube, 4, {"labelSelector": "x=y"})
    assert names(changes) == [("listed", ["a", "b"]), ("Put", "c"), ("Put", "a"), ("Drop", "b")]
    assert changes[0].objects[1].spec.pod_cidrs == ("10.1.0.0/24",)
    assert [dict(r.query) for r in server.asked] == [
        {"labelSelector": "x=y", "limit": "250"},
        {"labelSelector": "x=y", "limit": "250", "continue": "token2"},
        {
            "labelSelector": "x=y",
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": "10",
            "timeoutSeconds": "300",
        },
    ]
    assert pauses == []


async def test_kube_an_ended_watch_is_resumed_from_the_last_change_or_bookmark_without_a_new_list() -> None:
    async with played(
        page(version="10"),
        stream(("ADDED", node("a", "11")), ("BOOKMARK", {"metadata": {"resourceVersion": "15"}})),
        stream(("ADDED", node("b", "16")), cut=True),
        stream(("ADDED", node("c", "17"))),
    ) as (kube, server, pauses):
        changes = await take(kube, 4)
    assert names(changes) == [("listed", []), ("Put", "a"), ("Put", "b"), ("Put", "c")]
    assert [r.query.get("resourceVersion") for r in server.asked] == [None, "10", "15", "16"]
    assert pauses == [0.8]


@pytest.mark.parametrize("in_stream", [True, False], ids=["as an event", "as the answer"])
async def test_kube_410_lists_again_and_tells_all_that_is_there_now(in_stream: bool) -> None:
    gone = failure(410, "too old resource version")
    async with played(
        page(node("a"), version="10"),
        stream(("ERROR", gone)) if in_stream else answer(gone, 410),
        page(node("b"), version="20"),
        stream(("ADDED", node("c", "21"))),
    ) as (kube, server, pauses):
        changes = await take(kube, 3)
    assert pauses == [0.8]
    assert names(changes) == [("listed", ["a"]), ("listed", ["b"]), ("Put", "c")]
    assert server.asked[3].query["resourceVersion"] == "20"


async def test_kube_a_page_that_expired_starts_the_list_again_and_not_forever() -> None:
    gone = failure(410, "continue expired")
    async with played(page(node("a"), more="t"), answer(gone, 410), page(node("b"))) as (kube, _, _):
        objects, version = await kube.list(NODES, Node)
        assert ([o.metadata.name for o in objects], version) == (["b"], "10")
    async with played(*[answer(gone, 410)] * 3) as (kube, _, _):
        with pytest.raises(Unavailable, match="list expired 3 times"):
            await kube.list(NODES, Node)


async def test_kube_failures_are_told_and_tried_again_with_growing_pauses() -> None:
    told: list[str] = []
    async with played(
        answer(failure(503, "starting"), 503),
        answer(failure(403, "nodes is forbidden"), 403),
        answer(failure(429, "slow down"), 429),
        page(node("a")),
        answer(failure(500, "etcd"), 500),
        stream(("ADDED", node("b", "11"))),
    ) as (kube, _, pauses):
        changes = kube.watch(NODES, Node, trouble=told.append)
        got = [await asyncio.wait_for(anext(changes), 30) for _ in range(2)]
        await changes.aclose()  # type: ignore[attr-defined]
    assert names(got) == [("listed", ["a"]), ("Put", "b")]
    assert told == ["starting", "nodes is forbidden", "slow down", "", "etcd", ""]
    assert pauses == [0.8, 1.6, 3.2, 6.4]


async def test_kube_a_server_that_asks_to_wait_is_no_warning_unless_it_goes_on_for_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    kube_log = "antrea.outside.kube.backoff"
    steps = [answer(failure(429, "storage is (re)initializing"), 429)] * 8
    async with played(*steps, page(node("a")), answer(failure(503, "away"), 503)) as (kube, server, pauses):
        watching = asyncio.create_task(take(kube, 2))
        await asyncio.wait_for(server.finished.wait(), 30)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert pauses[:8] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert [
        (one.levelname, vars(one)["fields"]["err"]) for one in caplog.records if one.name == kube_log
    ] == [
        ("WARNING", "storage is (re)initializing"),
        ("WARNING", "storage is (re)initializing"),
        ("WARNING", "away"),
    ]


async def test_kube_the_trouble_is_over_when_a_quiet_watch_is_taken_up_again() -> None:
    told: list[str] = []
    over = asyncio.Event()

    def hear(why: str) -> None:
        told.append(why)
        if told == ["", "initializing", ""]:
            over.set()

    async def quiet(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(60)
        return response

    async with played(page(node("a")), answer(failure(429, "initializing"), 429), quiet) as (kube, _, _):
        changes = kube.watch(NODES, Node, trouble=hear)
        assert names([await anext(changes)]) == [("listed", ["a"])]
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.wait_for(over.wait(), 30)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_kube_pauses_stop_growing_at_thirty_seconds_and_a_watch_without_news_pauses_too() -> None:
    async with played(page(), *[stream()] * 8) as (kube, server, pauses):
        watching = asyncio.create_task(take(kube, 2))
        await asyncio.wait_for(server.finished.wait(), 30)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert pauses == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


@pytest.mark.parametrize("cut", [False, True])
async def test_kube_a_quiet_watch_that_something_on_the_way_ends_after_a_while_is_taken_up_again_soon(
    cut: bool,
) -> None:
    """HAProxy, for one, ends what has been idle for 50 s; the bookmarks of a quiet collection come less often."""
    clock, looked = 0.0, asyncio.Event()

    def now() -> float:
        looked.set()
        return clock

    async def idle(request: web.Request) -> web.StreamResponse:
        nonlocal clock
        response = web.StreamResponse()
        looked.clear()
        await response.prepare(request)
        # the client has noted when it was taken up
        await asyncio.wait_for(looked.wait(), 30)
        clock += 50
        if cut and request.transport:
            request.transport.abort()
        return response

    async with played(page(), *[idle] * 4, stream(cut=cut), idle, now=now) as (
        kube,
        server,
        pauses,
    ):
        watching = asyncio.create_task(take(kube, 2))
        await asyncio.wait_for(server.finished.wait(), 30)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert pauses == [0.8, 0.8, 0.8, 0.8, 1.6, 0.8]


async def test_kube_lines_of_any_length_and_any_split_are_whole_objects() -> None:
    big = node("big", "11")
    big["metadata"]["annotations"] = {"a": "x" * 300_000}
    async with played(page(), stream(("ADDED", big), ("ADDED", node("b", "12")), split=50_000)) as (
        kube,
        _,
        _,
    ):
        changes = await take(kube, 3)
    assert names(changes)[1:] == [("Put", "big"), ("Put", "b")]
    assert len(changes[1].object.metadata.annotations["a"]) == 300_000


async def test_kube_an_answer_that_is_no_json_or_of_another_shape_is_tried_again() -> None:
    async with played(answer([1]), page(node("a")), stream(("ADDED", {"metadata": 3}))) as (kube, _, pauses):
        assert names(await take(kube, 1)) == [("listed", ["a"])]
        assert pauses == [0.8]


async def test_kube_get_gives_the_object_or_none_or_the_apis_reason() -> None:
    async with played(
        answer(node("a", "7", "10.0.0.0/24")),
        answer(failure(404, 'nodes "b" not found'), 404),
        answer(failure(403, "no"), 403),
        answer(failure(500, "down"), 500),
        token="secret",
    ) as (kube, server, _):
        found = await kube.get(f"{NODES}/a", Node)
        assert found is not None
        assert found.metadata == ObjectMeta("a", resource_version="7")
        assert await kube.get(f"{NODES}/b", Node) is None
        with pytest.raises(Refused, match=r"^no$") as refused:
            await kube.get(f"{NODES}/c", Node)
        assert refused.value.entries == (f"{NODES}/c",)
        with pytest.raises(Unavailable, match=r"^down$"):
            await kube.get(f"{NODES}/d", Node)
    assert server.asked[0].headers["Authorization"] == "Bearer secret"
    assert server.asked[0].headers["User-Agent"].startswith(f"antrea/v{VERSION} (")


async def test_kube_a_server_that_is_away_is_unavailable() -> None:
    async with Kube(Access("http://127.0.0.1:9")) as kube:
        with pytest.raises(Unavailable, match=r"kube-apiserver http://127.0.0.1:9: "):
            await kube.get(f"{NODES}/a", Node)


@pytest.mark.parametrize(
    ("how", "content", "query"),
    [
        (PatchKind.MERGE, "application/merge-patch+json", {"fieldManager": "me"}),
        (PatchKind.STRATEGIC, "application/strategic-merge-patch+json", {"fieldManager": "me"}),
        (PatchKind.APPLY, "application/apply-patch+yaml", {"fieldManager": "me", "force": "true"}),
    ],
)
async def test_kube_a_patch_carries_its_kind_and_its_field_manager(
    how: PatchKind, content: str, query: dict[str, str]
) -> None:
    body = {"metadata": {"annotations": {"a": "b"}}}
    async with played(answer({}), answer(failure(404, "gone"), 404)) as (kube, server, _):
        await kube.patch(f"{NODES}/a", body, how, manager="me")
        with pytest.raises(Refused, match="gone"):
            await kube.patch(f"{NODES}/a", body, how)
    request = server.asked[0]
    assert (request.method, request.path, request.content_type) == ("PATCH", f"{NODES}/a", content)
    assert dict(request.query) == query
    assert json.loads(server.bodies[0]) == body


async def test_kube_an_event_about_a_node_goes_to_namespace_default() -> None:
    async with played(answer({}, 201)) as (kube, server, _):
        about = ObjectReference("Node", "n1", uid="n1")
        await kube.create_event(about, "UnknownKey", "unknown key x is ignored", warning=True, host="n1")
    assert server.asked[0].path == "/api/v1/namespaces/default/events"
    event = json.loads(server.bodies[0])
    assert event["metadata"].pop("name").startswith("n1.")
    assert event.pop("firstTimestamp") == event.pop("lastTimestamp")
    assert event == {
        "metadata": {"namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"},
        "reason": "UnknownKey",
        "message": "unknown key x is ignored",
        "type": "Warning",
        "source": {"component": "antrea-agent", "host": "n1"},
        "count": 1,
    }


async def test_kube_a_list_after_an_outage_does_not_wait_as_long_as_the_outage_made_it() -> None:
    away, gone = answer({"message": "away"}, 503), answer(failure(410, "too old"), 410)
    async with played(page(version="10"), away, away, away, away, gone, page(node("b"), version="20")) as (
        kube,
        _,
        pauses,
    ):
        assert names(await take(kube, 2)) == [("listed", []), ("listed", ["b"])]
    assert pauses == [0.8, 1.6, 3.2, 6.4, 0.8]


async def test_kube_lists_that_are_forgotten_at_once_are_asked_less_and_less() -> None:
    gone = answer(failure(410, "too old"), 410)
    script = [step for number in range(3) for step in (page(version=str(number)), gone)]
    async with played(*script, page(node("b"), version="20")) as (kube, _, pauses):
        await take(kube, 4)
    assert pauses == [0.8, 1.6, 3.2]


async def test_who_asks_while_connections_are_being_closed_or_later_is_told_so() -> None:
    async with played(page(node("n1")), page(node("n1"))) as (kube, server, _):
        watching = kube.watch(NODES, Node)
        await anext(watching)
        closing = asyncio.create_task(kube.close())
        await asyncio.sleep(0)
        for _ in range(2):
            with pytest.raises(Unavailable, match="closed"):
                await kube.get(f"{NODES}/n1", Node)
            await closing
        assert len(server.asked) == 1
        await watching.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name",
    [
        "../pods/db",
        "..",
        ".",
        "",
        "a/../b",
        "%2e%2e/x",
        "%2E%2E%2Fpods",
        "a%5cb",
        "a\\b",
        "a?x=y",
        "a#b",
        "a\n",
        "%252e",
    ],
)
async def test_a_name_that_leads_to_another_object_is_never_asked_for(name: str) -> None:
    seen: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.json_response({})

    path = f"/apis/crd.antrea.io/v1beta1/externalippools/{name}"
    async with client_of(serve) as kube:
        for asked in (
            kube.get(path, dict), kube.patch(path, {}), kube.create(path, {}), kube.delete(path),
            kube.ask(path, {}, dict), kube.list(path, dict),
        ):  # fmt: skip
            with pytest.raises(Refused, match="is not a path of an object"):
                await asked
    assert seen == []
