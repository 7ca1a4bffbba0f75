"""Records are with who follows them within two seconds, without a store, and only with users who may see them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import pytest
from aggregator_world import World, until
from aiohttp import web
from free_port import free_port
from loopback import client_of
from test_flow_aggregator_process import halves, sent
from test_flow_visibility import ClusterRights

from antrea.config.flow_aggregator import AggregatorApi, GrpcCollector, RecordContents
from antrea.flow_aggregator import live

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LIMIT = 2.0
"""Seconds until a denied connection is in the live view, from when its agent sent it."""

WEB = {
    "metadata": {"namespace": "shop", "name": "web"}, "spec": {"nodeName": "n1"},
    "status": {"phase": "Running", "podIPs": [{"ip": halves()[0].source_ip}]},
}  # fmt: skip


class Rights(ClusterRights):
    """Users may GET what is below /flows; there is one Pod."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/api/v1/pods":
            return await super().answer(request)
        if "watch" in request.query:
            await asyncio.sleep(60)
        listed = {"metadata": {"resourceVersion": "1"}, "items": [WEB]}
        return web.json_response(listed)

    @staticmethod
    def _may(spec: Any) -> bool:
        if path := spec.get("nonResourceAttributes"):
            return bool(path["verb"] == "get" and path["path"].startswith("/flows"))
        return ClusterRights._may(spec)


@contextlib.asynccontextmanager
async def serving(folder: Path, contents: RecordContents | None = None) -> AsyncIterator[tuple[str, int]]:
    """The URL of an aggregator's API, and the port that takes records."""
    async with client_of(Rights().answer) as kube:
        api = AggregatorApi(api_port=free_port(), authorize_users=True)
        here = World(
            folder,
            kube,
            api_server=api,
            aggregator_transport_protocol="tcp",
            record_contents=contents or RecordContents(),
            grpc_collector=GrpcCollector(enable=False),
        )
        async with here.running():
            await until(lambda: _listens(api.api_port))
            yield f"https://127.0.0.1:{api.api_port}", here.aggregator.intake.port


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


class Follower:
    """Events of one stream; the first is sent when it is open."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.last = ""

    async def rows(self) -> list[dict[str, Any]]:
        """Of the next event."""
        async with asyncio.timeout(30):
            while line := await self._answer.content.readline():
                if line.startswith(b"id: "):
                    self.last = line[4:].decode().strip()
                if line.startswith(b"data: "):
                    found: list[dict[str, Any]] = json.loads(line[6:])["rows"]
                    return found
        raise AssertionError("the stream has ended")


@contextlib.asynccontextmanager
async def following(url: str, token: str, query: str = "", last: str = "") -> AsyncIterator[Follower]:
    headers = {"Authorization": f"Bearer {token}", **({"Last-Event-ID": last} if last else {})}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/flows/live{query}", headers=headers, ssl=False) as answer,
    ):
        assert (answer.status, answer.content_type) == (200, "text/event-stream"), await answer.text()
        yield Follower(answer)


async def test_a_denied_connection_is_there_in_two_seconds_though_the_other_node_is_silent(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (url, port), following(url, "root", "?action=denied") as follower:
        assert await follower.rows() == []
        _, half = halves()
        half.ingress_network_policy_rule_action, half.ingress_network_policy_name = 2, "closed"
        began = time.monotonic()
        await (await sent(port, "n2", "tcp", half)).close()
        [row] = await follower.rows()
        assert time.monotonic() - began < LIMIT
        assert (row["destinationPodName"], row["ingressNetworkPolicyName"]) == ("db", "closed")


async def test_a_user_of_one_namespace_follows_its_connections_alone_and_no_halves(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as (url, port),
        following(url, "ann", "?namespaces=shop") as ann,
        following(url, "root") as root,
    ):
        assert [await one.rows() for one in (ann, root)] == [[], []]
        first, second = halves()
        second.ingress_network_policy_rule_action = 2
        hidden = msgspec.structs.replace(
            first, source_pod_namespace="secret", flow_type=1, source_transport_port=4100
        )
        await (await sent(port, "n2", "tcp", second)).close()
        assert [row["sourcePodName"] for row in await root.rows()] == [""]
        await (await sent(port, "n1", "tcp", hidden, first)).close()
        seen: list[str] = []
        while len(seen) < 2:
            seen += [row["sourcePodNamespace"] for row in await root.rows()]
        assert sorted(seen) == ["secret", "shop"]
        # the first that ann gets is the joined one
        assert [(row["sourcePodName"], row["destinationPodName"]) for row in await ann.rows()] == [
            ("web", "db")
        ]


async def test_a_user_of_one_namespace_follows_a_denied_connection_at_once_where_addresses_are_named(
    tmp_path: Path,
) -> None:
    async with (
        serving(tmp_path, RecordContents(pod_names=True)) as (url, port),
        following(url, "ann", "?namespaces=shop") as ann,
    ):
        assert await ann.rows() == []
        _, half = halves()
        half.ingress_network_policy_rule_action = 2
        # it may be one of another Namespace, which ann may not see
        unknown = msgspec.structs.replace(half, source_ip="10.9.9.9", source_transport_port=4100)
        await (await sent(port, "n2", "tcp", unknown, half)).close()
        [row] = await ann.rows()
        assert (row["sourcePodName"], row["sourceNodeName"], row["destinationPodName"]) == ("web", "n1", "db")


async def test_a_client_goes_on_after_its_last_event_when_a_stream_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as (url, port):
        with monkeypatch.context() as patch:
            patch.setattr(live, "MAX_SECONDS", 1.0)
            async with following(url, "root") as first:
                await first.rows()
                with pytest.raises(AssertionError, match="has ended"):
                    await first.rows()
        async with following(url, "root") as other:
            assert await other.rows() == []
            for half, node in zip(halves(), ("n1", "n2"), strict=True):
                await (await sent(port, node, "tcp", half)).close()
            assert [row["sourcePodName"] for row in await other.rows()] == ["web"]
        async with following(url, "root", last=first.last) as again:
            assert [row["sourcePodName"] for row in await again.rows()] == ["web"]


@pytest.mark.parametrize(
    ("token", "query", "code", "words"),
    [
        ("ann", "", 403, "namespaces=NAME"),
        ("ann", "?namespaces=kube-system", 403, "kube-system"),
        ("eve", "?namespaces=shop", 403, "cannot list"),
        ("mallory", "", 401, "Unauthorized"),
        ("root", "?port=x", 400, "port"),
        ("root", "?since=1h", 400, "since"),
    ],
)
async def test_who_may_not_see_is_refused_before_a_stream(
    tmp_path: Path, token: str, query: str, code: int, words: str
) -> None:
    async with serving(tmp_path) as (url, _), aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {token}"}
        async with session.get(f"{url}/flows/live{query}", headers=headers, ssl=False) as answer:
            assert (answer.status, words in await answer.text()) == (code, True)


async def test_a_user_has_a_bounded_number_of_streams_and_others_have_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_FOLLOWERS_OF_USER", 3)
    monkeypatch.setattr(live, "MAX_FOLLOWERS", 3)
    async with contextlib.AsyncExitStack() as held:
        url, _ = await held.enter_async_context(serving(tmp_path))
        roots = [await held.enter_async_context(following(url, "root")) for _ in range(3)]
        await roots[0].rows()
        session = await held.enter_async_context(aiohttp.ClientSession())

        async def refusal(token: str) -> str:
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"{url}/flows/live?namespaces=shop", headers=headers, ssl=False) as answer:
                assert answer.status == 503
                return await answer.text()

        assert "you follow records 3 times already" in await refusal("root")
        # another user takes the place of the oldest of them, but no more than root has then
        await (await held.enter_async_context(following(url, "ann", "?namespaces=shop"))).rows()
        with pytest.raises(AssertionError, match="the stream has ended"):
            await roots[0].rows()
        assert "3 clients follow records already" in await refusal("ann")
