"""What a replica that does not lead does with requests: its own answer, the leader's, or none."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from certificate_world import until

from antrea.apis.controlplane import NetworkPolicy
from antrea.apis.meta import ObjectMetadata
from antrea.controller.apiserver import ipc, leader_proxy
from antrea.controller.apiserver.leader_proxy import MARK, LeaderProxy, LeaderState
from antrea.errors import Unavailable
from antrea.features.registry.api_resources import RESOURCES
from antrea.outside.apiserver.attributes import attributes
from antrea.outside.apiserver.objects import Objects
from antrea.outside.kube.access import Access
from antrea.outside.kube.client import Kube
from antrea.outside.tls import authority
from antrea.outside.tls.server_context import Certificate, server_tls

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

NAME = "antrea.kube-system.svc"
PAIR = authority.make((NAME,), ())
STATS, CP = "/apis/stats.antrea.io/v1alpha1", "/apis/controlplane.antrea.io/v1beta2"
LATENCY = {
    "apiVersion": "stats.antrea.io/v1alpha1", "kind": "NodeLatencyStats", "metadata": {"name": "n1"},
    "peerNodeLatencyStats": [],
}  # fmt: skip


class Nobody:
    async def answer(self, question: Any) -> Any:
        raise AssertionError(question)


class Follower:
    """A replica that is asked over plain HTTP."""

    def __init__(self, file: Path) -> None:
        self.objects = Objects(RESOURCES, Nobody())
        for store in self.objects.stores.values():
            store.sync()
        self.leading = LeaderState(elected=True)
        self.kube = Kube(Access("http://127.0.0.1:1", token="own"))
        self.late = asyncio.Event()
        self.behind = ""
        self.forward = LeaderProxy(
            self.objects, self.leading, self.kube, server_name=NAME, ca_file=file, fresh=self.fresh
        )

    async def fresh(self) -> None:
        if self.behind:
            raise Unavailable(self.behind)
        await self.late.wait()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        asked = attributes(request.method, request.rel_url.raw_path, request.query)
        try:
            return await self.forward.answer(request, asked)
        except Unavailable as error:
            return web.Response(status=503, text=str(error))


@asynccontextmanager
async def served(handler: Any, **more: Any) -> AsyncIterator[TestServer]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    server = TestServer(app, **more)
    await server.start_server(**more)
    try:
        yield server
    finally:
        await server.close()


def tls(pair: Certificate) -> ssl.SSLContext:
    return server_tls(pair)


@asynccontextmanager
async def follower(tmp_path: Path) -> AsyncIterator[tuple[Follower, TestClient[Any, Any]]]:
    file = tmp_path / "ca.crt"
    file.write_text(PAIR.certificate_pem)
    made = Follower(file)
    async with served(made.handle) as server, TestClient(server) as client:
        try:
            yield made, client
        finally:
            await made.forward.close()


class Leader:
    """Notes what it is asked, and answers or says that it does not lead."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, bytes]] = []
        self.leads = True

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if not self.leads:
            return web.Response(status=503, headers={MARK: "does not lead"})
        token = request.headers["Authorization"]
        self.asked.append((request.method, request.path_qs, token, await request.read()))
        return web.json_response({"from": "the leader"}, status=201)


def tells(replica: Follower, server: TestServer) -> None:
    replica.leading.follow(ipc.Leader(False, f"127.0.0.1:{server.port}"))


async def test_forward_reports_and_what_is_made_of_them_are_the_leaders(tmp_path: Path) -> None:
    leader = Leader()
    async with follower(tmp_path) as (ours, client), served(leader.handle, ssl=tls(PAIR)) as server:
        tells(ours, server)
        posted = await client.post(f"{STATS}/nodelatencystats", json=LATENCY)
        assert (posted.status, await posted.json()) == (201, {"from": "the leader"})
        await client.get(f"{STATS}/nodelatencystats?pretty=true")
        await client.post(f"{CP}/networkpolicies/p/status", json={})
        assert [(method, path, token) for method, path, token, _ in leader.asked] == [
            ("POST", f"{STATS}/nodelatencystats", "Bearer own"),
            ("GET", f"{STATS}/nodelatencystats?pretty=true", "Bearer own"),
            ("POST", f"{CP}/networkpolicies/p/status", "Bearer own"),
        ]
        # what every replica computes it answers itself
        own = await client.get(f"{CP}/addressgroups")
        assert (own.status, (await own.json())["items"], len(leader.asked)) == (200, [], 3)


async def test_forward_a_leader_answers_itself_and_nobody_forwards_twice(tmp_path: Path) -> None:
    async with follower(tmp_path) as (ours, client):
        twice = await client.get(f"{STATS}/nodelatencystats", headers={MARK: "forwards"})
        assert (twice.status, MARK in twice.headers) == (503, True)
        ours.leading.follow(ipc.Leader(True))
        posted = await client.post(f"{STATS}/nodelatencystats", json=LATENCY)
        shown = await (await client.get(f"{STATS}/nodelatencystats")).json()
        assert (posted.status, [one["metadata"]["name"] for one in shown["items"]]) == (201, ["n1"])


async def test_forward_waits_for_the_next_leader_when_the_one_before_has_gone(tmp_path: Path) -> None:
    old, new = Leader(), Leader()
    old.leads = False
    async with (
        follower(tmp_path) as (ours, client),
        served(old.handle, ssl=tls(PAIR)) as first,
        served(new.handle, ssl=tls(PAIR)) as second,
    ):
        tells(ours, first)
        waiting = asyncio.create_task(client.get(f"{STATS}/nodelatencystats"))
        await asyncio.sleep(0)
        ours.leading.follow(ipc.Leader(False))
        await first.close()
        tells(ours, second)
        await until(waiting.done)
        assert ((await waiting).status, len(new.asked)) == (201, 1)


async def test_forward_trusts_only_the_certificate_of_our_own_ca(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_proxy, "LEADER_SECONDS", 0.3)
    leader = Leader()
    foreign = authority.make((NAME,), ())
    async with follower(tmp_path) as (ours, client), served(leader.handle, ssl=tls(foreign)) as server:
        tells(ours, server)
        refused = await client.get(f"{STATS}/nodelatencystats")
        assert (refused.status, leader.asked) == (503, [])
        assert "CERTIFICATE_VERIFY_FAILED" in await refused.text()


async def test_forward_without_any_leader_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_proxy, "LEADER_SECONDS", 0.1)
    async with follower(tmp_path) as (_, client):
        refused = await client.get(f"{STATS}/nodelatencystats")
        assert (refused.status, await refused.text()) == (
            503,
            "no replica of the controller leads now, try again",
        )


async def test_forward_a_watch_begins_when_this_replica_knows_what_another_may_have_told(
    tmp_path: Path,
) -> None:
    async with follower(tmp_path) as (ours, client):
        store = ours.objects.stores["controlplane.antrea.io", "networkpolicies"]
        asked = asyncio.create_task(client.get(f"{CP}/networkpolicies?watch=true&timeoutSeconds=1"))
        await asyncio.sleep(0.05)
        assert store.watchers() == []
        store.put("p", NetworkPolicy(metadata=ObjectMetadata(name="p")))
        ours.late.set()
        lines = (await (await asked).text()).splitlines()
        assert [json.loads(line)["type"] for line in lines] == ["ADDED", "BOOKMARK"]
        ours.behind = "/api/v1/pods is not watched now"
        refused = await client.get(f"{CP}/networkpolicies?watch=true")
        assert (refused.status, await refused.text()) == (503, "/api/v1/pods is not watched now")
