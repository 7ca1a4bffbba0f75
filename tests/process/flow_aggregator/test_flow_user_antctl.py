"""What a policy does, what to recommend and how Nodes are: of kube-apiserver with the user's own token, and with no other right."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from aggregator_world import World
from aiohttp import web
from free_port import free_port
from loopback import client_of
from test_flow_visibility import ClusterRights, RecordingStore, namespaces

from antrea.config.flow_aggregator import AggregatorApi, GrpcCollector
from antrea.flow_aggregator import user_antctl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from antrea.outside.clickhouse.store import Value

CLOSED = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "closed", "namespace": "shop", "uid": "p"},
    "spec": {"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"]},
}


def pod(name: str, address: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "shop", "uid": name, "labels": {"app": name}}
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    return {"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}


def node(name: str) -> dict[str, Any]:
    address = {"type": "InternalIP", "address": "192.0.2.1"}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [address]}
    return {"metadata": {"name": name}, "status": status}


def agent_info() -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": kind, "status": "True", "lastHeartbeatTime": now, "message": message}
        for kind, message in (("AgentHealthy", ""), ("FlowCollectorUnreachable", "nobody listens"))
    ]
    return {"metadata": {"name": "n1"}, "version": "v9", "agentConditions": conditions}


class ClusterObjects(ClusterRights):
    """A cluster whose objects `root` may list; `tokens` are those with which it was asked for some, `store` has what was seen."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: set[str] = set()
        self.store, self.is_overloaded = SeenStore(), False
        self.lists = {
            "/api/v1/pods": [pod("web", "10.1.0.5"), pod("db", "10.1.0.7")],
            "/api/v1/namespaces/shop/pods": [pod("web", "10.1.0.5"), pod("db", "10.1.0.7")],
            "/api/v1/namespaces": [
                {"metadata": {"name": "shop", "labels": {"kubernetes.io/metadata.name": "shop"}}}
            ],
            "/apis/networking.k8s.io/v1/networkpolicies": [CLOSED],
            "/api/v1/nodes": [node("n1"), node("n2")],
            "/apis/crd.antrea.io/v1beta1/antreaagentinfos": [agent_info()],
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return await super().answer(request)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.tokens.add(token)
        if token != "root":
            return web.json_response({"message": f"{token} may not list"}, status=403)
        if self.is_overloaded:
            return web.json_response({"message": "try later"}, status=503)
        items = self.lists.get(request.path)
        found = {"items": items, "metadata": {}} if items is not None else {"message": "not found"}
        return web.json_response(found, status=404 if items is None else 200)

    @staticmethod
    def _may(spec: Mapping[str, Any]) -> bool:
        if path := spec.get("nonResourceAttributes"):
            return bool(path["path"].startswith("/flows"))
        return ClusterRights._may(spec)


class SeenStore(RecordingStore):
    """One connection was allowed, and another denied."""

    async def run(self, sql: str, parameters: Mapping[str, Value] | None = None) -> bytes:
        await super().run(sql, parameters)
        web, db = ("shop", "web"), ("shop", "db")
        return b"".join(
            json.dumps(row).encode() + b"\n"
            for row in ([*web, *db, 0, 5432, 6, 9000, 4, 0, 0, 1], [*db, *web, 0, 22, 6, 60, 2, 2, 0, 0])
        )


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[str, ClusterObjects]]:
    cluster = ClusterObjects()
    async with client_of(cluster.answer) as kube:
        api = AggregatorApi(api_port=free_port(), authorize_users=True)
        here = World(
            folder, kube, api_server=api, aggregator_transport_protocol="tcp",
            grpc_collector=GrpcCollector(enable=False),
        )  # fmt: skip
        here.aggregator.store = cluster.store
        async with here.running():
            yield f"https://127.0.0.1:{api.api_port}", cluster


async def asked(url: str, token: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    method = "GET" if body is None else "POST"
    async with aiohttp.ClientSession() as session:
        for _ in range(300):
            with contextlib.suppress(aiohttp.ClientConnectorError):  # it has not begun to listen
                async with session.request(
                    method, f"{url}/flows/{path}".replace("/?", "?"), headers=headers, data=body, ssl=False
                ) as found:
                    text = await found.text()
                    return found.status, json.loads(text) if text.startswith("{") else text
            await asyncio.sleep(0.1)
    raise AssertionError("the API does not listen")


WHY = "explain?from=shop/web&to=shop/db&port=5432/tcp"


async def test_a_connection_is_explained_with_the_smallest_change_by_the_users_own_right(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (url, cluster):
        code, found = await asked(url, "root", WHY)
        assert (code, found["verdict"]) == (200, "Drop"), found
        assert "closed" in json.dumps(found["ingress"])
        assert found["changes"]
        assert cluster.tokens == {"root"}
        code, found = await asked(url, (tmp_path / "token").read_text(), WHY)
        assert (code, "users of the cluster" in found["message"]) == (403, True)
        assert cluster.tokens == {"root"}


async def test_who_may_see_flows_and_no_policies_is_told_so_and_gets_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (url, cluster):
        for path in (WHY + "&namespaces=shop", "recommend?namespace=shop"):
            code, found = await asked(url, "ann", path)
            assert (code, "ann may not list" in found["message"]) == (403, True), found
        code, found = await asked(url, "ann", "replay?namespace=shop", yaml.safe_dump(CLOSED).encode())
        assert (code, "ann may not list" in found["message"]) == (403, True), found
        assert cluster.tokens == {"ann"}
        code, found = await asked(url, "ann", "nodes?namespaces=shop")
        assert (code, "ann may not list" in json.dumps(found)) == (403, True)


@pytest.mark.parametrize("path", [WHY, "recommend?namespace=shop", "nodes", "replay?namespace=shop"])
async def test_while_kube_apiserver_cannot_answer_a_user_is_to_try_again(tmp_path: Path, path: str) -> None:
    body = yaml.safe_dump(CLOSED).encode() if path.startswith("replay") else None
    async with serving(tmp_path) as (url, cluster):
        cluster.is_overloaded = True
        code, found = await asked(url, "root", path, body)
        assert (code, "try later" in json.dumps(found)) == (503, True), found


ASKED_FROM_RECORDS = (
    "?",
    "map?by=endpoint&",
    "top?by=policy&",
    "policies?",
    "live?",
    "recommend?",
    "replay?",
)
"""All that is answered from records, with the query begun."""


@pytest.mark.parametrize("path", ASKED_FROM_RECORDS)
async def test_no_answer_is_made_of_records_of_other_namespaces(tmp_path: Path, path: str) -> None:
    body = yaml.safe_dump(CLOSED).encode() if path == "replay?" else None
    async with serving(tmp_path) as (url, cluster):
        for scope in ("", "namespaces=shop,secret", "namespace=secret", "namespaces=secret&namespace=shop"):
            code, found = await asked(url, "ann", path + scope, body)
            assert (code, "cannot list" in json.dumps(found)) == (403, True), (scope, found)
        assert (cluster.store.asked, cluster.tokens) == ([], set())
        if path != "live?":  # which ends no answer, and has a test of its own
            await asked(url, "ann", f"{path}namespaces=shop&namespace=secret", body)
            assert [namespaces(values) for values in cluster.store.asked] == [[["shop"]]]


async def test_policies_are_recommended_and_tried_on_what_was_seen(tmp_path: Path) -> None:
    async with serving(tmp_path) as (url, _):
        code, found = await asked(url, "root", "recommend?namespace=shop&since=15m")
        assert (code, found.get("partial")) == (200, False), found
        names = [one["metadata"]["name"] for one in yaml.safe_load_all(found["yaml"])]
        assert names == [row["name"] for row in found["policies"]]
        assert names == ["recommended-db", "recommended-web", "recommended-default-deny"]
        assert "shop/web -> shop/db TCP/5432: 4" in found["policies"][0]["connections"]
        assert found["leftOut"] == ["shop/db -> shop/web TCP/22: denied 2 times"]
        code, tried = await asked(url, "root", "replay?namespace=shop&since=15m", found["yaml"].encode())
        assert code == 200, tried
        changed = {(row["source"], row["port"], row["before"], row["after"]) for row in tried["rows"]}
        assert changed == {
            ("workload/shop/db", 22, "Allow", "Drop"),
            ("workload/shop/web", 5432, "Drop", "Allow"),
        }
        assert "connections were judged" in tried["summary"]


async def test_nodes_are_shown_with_what_their_agents_report(tmp_path: Path) -> None:
    async with serving(tmp_path) as (url, _):
        code, found = await asked(url, "root", "nodes")
        assert code == 200, found
        troubles = {row["name"]: row["troubles"] for row in found["rows"]}
        assert troubles == {
            "n1": ["FlowCollectorUnreachable: nobody listens"],
            "n2": ["no agent has reported"],
        }


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("explain?from=--help/x&to=shop/db&port=80/tcp", None, "from"),
        ("explain?from=shop/web&to=shop/db&port=80/tcp%20--bundle=/etc", None, "port"),
        ("recommend?namespace=../x", None, "namespace"),
        ("replay?namespace=shop", b"a" * (user_antctl.MAX_POLICIES + 1), "more than 256 KiB"),
        ("replay", b"{not yaml", "no objects of Kubernetes"),
        ("replay", b"kind: Pod", "kind"),
    ],
)
async def test_what_is_no_question_is_refused_with_words(
    tmp_path: Path, path: str, body: bytes | None, words: str
) -> None:
    async with serving(tmp_path) as (url, _):
        code, found = await asked(url, "root", path, body)
        assert (code in (400, 422), words in json.dumps(found)) == (True, True), (code, found)


async def test_policies_that_unfold_without_end_end_with_their_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_antctl, "SECONDS", 8.0)
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]\n" for at in range(1, 30)
    )
    async with serving(tmp_path) as (url, _):
        code, _found = await asked(url, "root", "replay", bomb.encode())
        assert code in (422, 503)
        # the aggregator goes on
        assert (await asked(url, "root", WHY))[0] == 200
