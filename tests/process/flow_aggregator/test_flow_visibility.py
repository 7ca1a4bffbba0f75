"""Users see records of the Namespaces in which kube-apiserver lets them list flows, and no others."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aggregator_world import World
from aiohttp import web
from free_port import free_port
from loopback import client_of

from antrea.config.flow_aggregator import AggregatorApi, GrpcCollector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from antrea.outside.clickhouse.store import Value

SEEN: dict[str, set[str]] = {"ann": {"shop", "db"}, "root": {""}, "eve": set()}
"""Namespaces by user; the empty one is all."""


class ClusterRights:
    """Each token is its user's name; who is in SEEN may GET /flows and list flows there."""

    def __init__(self) -> None:
        self.away = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.away:
            return web.json_response({"message": "etcd is away"}, status=500)
        if request.path.endswith("/tokenreviews"):
            token = json.loads(await request.read())["spec"]["token"]
            user = {"authenticated": True, "user": {"username": token}} if token in SEEN else {}
            return web.json_response({"status": user}, status=201)
        if request.path.endswith("/subjectaccessreviews"):
            spec = json.loads(await request.read())["spec"]
            return web.json_response({"status": {"allowed": self._may(spec)}}, status=201)
        return web.json_response({"message": "not found"}, status=404)

    @staticmethod
    def _may(spec: Mapping[str, Any]) -> bool:
        seen = SEEN.get(spec["user"], set())
        if path := spec.get("nonResourceAttributes"):
            return bool(path == {"verb": "get", "path": "/flows"} and spec["user"] in SEEN)
        what = spec["resourceAttributes"]
        asked = (what["verb"], what["group"], what["resource"])
        return asked == ("list", "flow.antrea.io", "flows") and not seen.isdisjoint({"", what["namespace"]})


class RecordingStore:
    """Keeps the values of each statement; has no rows."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Value]] = []

    async def run(self, _: str, parameters: Mapping[str, Value] | None = None) -> bytes:
        self.asked.append(parameters or {})
        return b""

    async def insert(self, table: str, columns: Mapping[str, str], rows: bytes) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[str, RecordingStore, ClusterRights]]:
    """The URL of an aggregator's API that authorizes users, with its store and the rights of the cluster."""
    rights, store = ClusterRights(), RecordingStore()
    async with client_of(rights.answer) as kube:
        api = AggregatorApi(api_port=free_port(), authorize_users=True)
        here = World(
            folder,
            kube,
            api_server=api,
            aggregator_transport_protocol="tcp",
            grpc_collector=GrpcCollector(enable=False),
        )
        here.aggregator.store = store
        async with here.running():
            yield f"https://127.0.0.1:{api.api_port}", store, rights


async def asked(url: str, token: str, query: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session:
        for _ in range(300):
            with contextlib.suppress(aiohttp.ClientConnectorError):  # it has not begun to listen
                async with session.get(f"{url}/flows{query}", headers=headers, ssl=False) as found:
                    return found.status, await found.text()
            await asyncio.sleep(0.1)
    raise AssertionError("the API does not listen")


def namespaces(values: Mapping[str, Value]) -> list[list[str]]:
    return [list(value) for value in values.values() if not isinstance(value, str | int)]


@pytest.mark.parametrize(
    ("user", "query", "seen"),
    [
        ("root", "", []),
        ("root", "?namespaces=shop", [["shop"]]),
        ("ann", "?namespaces=shop,db", [["shop", "db"]]),
        ("ann", "?namespace=shop", [["shop"]]),
        ("ann", "?namespaces=shop,,shop&namespace=kube-system", [["shop"]]),
    ],
)
async def test_a_query_covers_the_namespaces_that_its_user_may_see(
    tmp_path: Path, user: str, query: str, seen: list[list[str]]
) -> None:
    async with serving(tmp_path) as (url, store, _):
        assert (await asked(url, user, query))[0] == 200
        assert namespaces(store.asked[0]) == seen


@pytest.mark.parametrize(
    ("user", "query", "code", "words"),
    [
        ("ann", "", 403, "namespaces=NAME"),
        ("ann", "?namespaces=shop,kube-system", 403, 'in the namespace \\"kube-system\\"'),
        ("ann", "?namespace=kube-system", 403, 'in the namespace \\"kube-system\\"'),
        ("eve", "?namespaces=shop", 403, 'User \\"eve\\" cannot list resource \\"flows\\"'),
        ("mallory", "", 401, "Unauthorized"),
        ("", "", 403, "system:anonymous"),
        ("ann", "?" + "namespaces=" + ",".join(f"n{number}" for number in range(65)), 400, "more than 64"),
    ],
)
async def test_nobody_sees_records_of_other_namespaces(
    tmp_path: Path, user: str, query: str, code: int, words: str
) -> None:
    async with serving(tmp_path) as (url, store, _):
        found, text = await asked(url, user, query)
        assert (found, words in text) == (code, True), text
        assert store.asked == []


async def test_rights_that_cannot_be_asked_let_nobody_in(tmp_path: Path) -> None:
    async with serving(tmp_path) as (url, store, rights):
        rights.away = True
        assert (await asked(url, "root", ""))[0] == 503
        assert store.asked == []
