"""Who is judged for what, when a replica hands a request on: two whole servers over TLS, and clients who try to pass for more."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.apis.meta import Status
from antrea.controller.apiserver import connected_agents, ipc
from antrea.controller.apiserver.leader_proxy import MARK, LeaderProxy, LeaderState
from antrea.features.registry.api_resources import RESOURCES
from antrea.outside.apiserver.authentication import CALLER, MASTERS, Authentication, User, written_caller
from antrea.outside.apiserver.authorization import Authorization
from antrea.outside.apiserver.objects import Objects, Question
from antrea.outside.apiserver.server import Server
from antrea.outside.kube.access import Access
from antrea.outside.kube.client import Kube
from antrea.outside.tls import authority
from antrea.outside.tls.server_context import server_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NAME = "antrea.kube-system.svc"
PAIR = authority.make((NAME,), ())
REPLICA = "system:serviceaccount:kube-system:antrea-controller"
STATS, SYSTEM = "/apis/stats.antrea.io/v1alpha1", "/apis/system.antrea.io/v1beta1"
TOKENS = {"agent": "agent", "reader": "reader", "replica": REPLICA, "one": "one"}
MAY = {
    ("agent", "create", "nodelatencystats", ""),
    ("reader", "get", "nodelatencystats", ""),
    ("reader", "list", "nodelatencystats", ""),
    ("one", "list", "nodelatencystats", "mine"),
    ("one", "get", "nodelatencystats", "mine"),
}
"""User, verb, resource, and the one name if it is not all of them."""
LATENCY = {"metadata": {"name": "n1"}, "peerNodeLatencyStats": []}


class Reviews:
    """An API server that knows these tokens and rights."""

    def __init__(self) -> None:
        self.judged: list[tuple[str, str, str]] = []

    async def get(self, path: str, kind: type[Any]) -> None:
        """It publishes no keys."""

    async def ask(self, path: str, question: Any, kind: type[Any]) -> Any:
        spec = question["spec"]
        if path.endswith("tokenreviews"):
            name = TOKENS.get(spec["token"], "")
            return msgspec.convert(
                {"status": {"authenticated": bool(name), "user": {"username": name}}}, kind
            )
        what = spec.get("resourceAttributes", spec.get("nonResourceAttributes"))
        self.judged.append((spec["user"], what["verb"], what.get("resource", what.get("path"))))
        rights = {(spec["user"], what["verb"], what.get("resource"), name) for name in ("", what.get("name"))}
        return msgspec.convert({"status": {"allowed": bool(rights & MAY)}}, kind)


class Computes:
    """Whoever gets this far has been let through."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def answer(self, question: Question) -> msgspec.Struct:
        self.asked.append(f"{question.verb} {question.resource}")
        return Status(status="Success", code=200)


class Replica:
    """One server; `leads` or forwards to `leader`."""

    def __init__(self, file: Path, leader: Replica | None = None) -> None:
        self.reviews, self.computes = Reviews(), Computes()
        self.objects = Objects(RESOURCES, self.computes)
        for store in self.objects.stores.values():
            store.sync()
        self.leading = LeaderState(elected=True)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        address = f"127.0.0.1:{leader.port}" if leader else ""
        self.leading.follow(ipc.Leader(leader is None, address))
        kube = Kube(Access("http://127.0.0.1:1", token="replica"))
        self.forward = LeaderProxy(
            self.objects, self.leading, kube, server_name=NAME, ca_file=file, fresh=self.fresh
        )
        self.server = Server(
            Authentication("own", self.reviews, replica=REPLICA),
            Authorization(["/healthz"], self.reviews, granted={connected_agents.PATH: frozenset([REPLICA])}),
            self.forward,
            handlers={("PUT", connected_agents.PATH): connected_agents.ConnectedAgents().handler()},
            openapi={},
        )

    async def fresh(self) -> None:
        """Nothing is late."""

    async def send(
        self, method: str, target: str, token: str, body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        """The target as it is, which HTTP clients would tidy up."""
        tls = ssl.create_default_context(cadata=PAIR.certificate_pem)
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=tls, server_hostname=NAME
            )
            text = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
            lines = [
                f"{method} {target} HTTP/1.1", "Host: antrea", "Connection: close", f"Authorization: Bearer {token}",
                "Content-Type: application/json", f"Content-Length: {len(text)}",
                *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
            ]  # fmt: skip
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + text)
            answer = await reader.read()
            writer.transport.abort()
        head, _, rest = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), rest


@asynccontextmanager
async def replicas(tmp_path: Path) -> AsyncIterator[tuple[Replica, Replica]]:
    """One that leads, and one that does not."""
    file = tmp_path / "ca.crt"
    file.write_text(PAIR.certificate_pem)
    leader = Replica(file)
    follower = Replica(file, leader)
    async with AsyncExitStack() as last:
        for one in (leader, follower):
            last.push_async_callback(one.forward.close)
            running = asyncio.ensure_future(one.server.run(one.listening, server_tls(PAIR)))
            last.callback(running.cancel)
        yield leader, follower


@pytest.mark.parametrize(
    "dots", ["../../..", "%2e%2e/%2e%2e/%2e%2e", "..%2f..%2f..", "..\\..\\..", ".%2E/../%2e."]
)
async def test_judged_an_agent_makes_no_support_bundle_and_a_reader_gets_none(
    tmp_path: Path, dots: str
) -> None:
    async with replicas(tmp_path) as (leader, follower):
        for replica in (follower, leader):
            made = await replica.send(
                "POST", f"{STATS}/nodelatencystats/{dots}/system.antrea.io/v1beta1/supportbundles", "agent",
                {"metadata": {"name": "b"}},
            )  # fmt: skip
            read = await replica.send(
                "GET", f"{STATS}/nodelatencystats/{dots}/system.antrea.io/v1beta1/supportbundles/b/download", "reader"
            )  # fmt: skip
            assert (made[0], read[0]) == (400, 400)
        assert leader.computes.asked == follower.computes.asked == []


async def test_judged_the_leader_judges_the_user_and_not_the_replica(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (leader, follower):
        assert (await follower.send("POST", f"{STATS}/nodelatencystats", "agent", LATENCY))[0] == 201
        status, shown = await follower.send("GET", f"{STATS}/nodelatencystats?pretty=true", "reader")
        assert (status, [one["metadata"]["name"] for one in json.loads(shown)["items"]]) == (200, ["n1"])
        assert leader.reviews.judged == [
            ("agent", "create", "nodelatencystats"),
            ("reader", "list", "nodelatencystats"),
        ]
        # a replica that lets everybody pass gives nobody more than he has
        follower.reviews.judged.clear()
        stolen = {CALLER: written_caller(User("agent")), MARK: "forwards"}
        refused = await leader.send(
            "POST", f"{SYSTEM}/supportbundles", "replica", {"metadata": {"name": "b"}}, **stolen
        )
        assert (refused[0], leader.computes.asked) == (403, [])
        # this Pod's own antctl has all rights, whichever replica it asks
        made = await follower.send("POST", f"{SYSTEM}/supportbundles", "own", {"metadata": {"name": "b"}})
        assert (made[0], leader.computes.asked) == (201, ["create supportbundles"])


async def test_judged_nobody_but_a_replica_speaks_for_others(tmp_path: Path) -> None:
    admin = {CALLER: written_caller(User("admin", (MASTERS,))), MARK: "forwards"}
    async with replicas(tmp_path) as (leader, follower):
        for replica in (leader, follower):
            for token in ("agent", "reader", "nobody"):
                status, _ = await replica.send("GET", f"{SYSTEM}/supportbundles/b/download", token, **admin)
                assert status == (401 if token == "nobody" else 403)
        # nor does a replica without a caller, but for its number of agents
        assert (await leader.send("GET", f"{STATS}/nodelatencystats", "replica"))[0] == 403
        assert (await leader.send("PUT", f"{connected_agents.PATH}?replica=r&agents=1", "replica"))[0] == 200
        assert (await leader.send("PUT", f"{connected_agents.PATH}?replica=r&agents=1", "agent"))[0] == 403
        for odd in ("%", base64.b64encode(b"{").decode(), base64.b64encode(b'{"name": 3}').decode()):
            status, _ = await leader.send("GET", f"{STATS}/nodelatencystats", "replica", **{CALLER: odd})
            assert status == 400


async def test_judged_the_object_that_is_judged_is_the_one_that_is_read(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (leader, follower):
        for name in ("mine", "yours"):
            body = {**LATENCY, "metadata": {"name": name}}
            assert (await leader.send("POST", f"{STATS}/nodelatencystats", "agent", body))[0] == 201
        path = f"{STATS}/nodelatencystats?fieldSelector=metadata.name"
        for replica in (leader, follower):
            status, shown = await replica.send("GET", f"{path}%3Dmine", "one")
            assert (status, [one["metadata"]["name"] for one in json.loads(shown)["items"]]) == (
                200,
                ["mine"],
            )
            for sly in (
                f"{path}%3Dmine,metadata.name%3Dyours",
                f"{path}%3Dmine&fieldSelector=metadata.name%3Dyours",
                f"{path}%3Dmine&fieldSelector=",
                f"{STATS}/watch/nodelatencystats/mine?fieldSelector=metadata.name%3Dyours",
            ):
                status, shown = await replica.send("GET", sly, "one")
                assert (status, b"peerNode" in shown) == (400, False)
            # a body says one thing: no reader may take it for another
            twice = b'{"metadata": {"name": "a"}, "metadata": {"name": "b"}}'
            status, _ = await replica.send("POST", f"{STATS}/nodelatencystats", "agent", twice)
            assert status == 400
            assert (await replica.send("POST", f"{STATS}/nodelatencystats/mine", "agent", LATENCY))[0] == 405
