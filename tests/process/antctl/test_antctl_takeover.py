"""`antctl kube-proxy takeover` before a cluster whose kube-proxy comes and goes with the label of its Node."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from click.testing import CliRunner
from loopback import answering

from antrea.antctl import mode
from antrea.antctl.failure import Failure
from antrea.antctl.kube_proxy import takeover
from antrea.antctl.kube_proxy.cluster import Cluster
from antrea.antctl.kube_proxy.config_edit import value_of
from antrea.antctl.kube_proxy.plan import AGENT_CONF, CONFIG_MAP, CONTROLLER_CONF, LABEL, blockers
from antrea.antctl.kube_proxy.takeover import NOTED, Takeover
from antrea.antctl.main import antctl
from antrea.antctl.pod_exec import PROTOCOLS, STDOUT, VERDICT
from antrea.antctl.request import Server
from antrea.outside.kube.access import Access

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MAPS = "/api/v1/namespaces/kube-system/configmaps"
SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
API = "https://192.0.2.10:6443"
AGENT_TEXT = '# ours\nkubeAPIServerOverride: ""\nantreaProxy:\n  proxyAll: false\n'


class World:
    """Two Nodes; what kube-proxy's DaemonSet and the agents would do is done at once."""

    def __init__(self) -> None:
        self.labels: dict[str, set[str]] = {"n1": set(), "n2": set()}
        self.rules = {"n1": 9, "n2": 9}
        self.maps: dict[str, dict[str, str]] = {
            CONFIG_MAP: {AGENT_CONF: AGENT_TEXT, CONTROLLER_CONF: ""},
            "kube-proxy": {"config.conf": "mode: nftables"},
        }
        self.affinity: Any = None
        self.kept: list[str] = []
        """Nodes whose connections to Services were told to keep their routes."""
        self.broken = ""
        """A Node whose Services are not served without kube-proxy."""
        self.filling: set[str] = set()
        """Nodes whose kube-proxy has made chains, and does not get to fill them."""
        self.generation = 1
        self.ended: dict[str, int] = {}
        """Connections that are too many to go on, by Node."""
        self.release = ""
        """The Helm release that has rendered antrea-config."""
        self.deleted = False
        """Somebody has deleted kube-proxy's DaemonSet and ConfigMap by hand."""

    @property
    def proxies(self) -> list[str]:
        """Nodes on which kube-proxy runs."""
        if self.deleted:
            return []
        return [name for name, labels in self.labels.items() if self.affinity is None or LABEL in labels]

    def daemon_set(self) -> dict[str, Any]:
        count = len(self.proxies)
        template: dict[str, Any] = {} if self.affinity is None else {"affinity": self.affinity}
        return {
            "metadata": {"name": "kube-proxy", "generation": self.generation},
            "spec": {"template": {"spec": template}},
            "status": {
                "observedGeneration": self.generation, "desiredNumberScheduled": count,
                "updatedNumberScheduled": count, "numberReady": count,
            },
        }  # fmt: skip

    def node(self, name: str, *, clean: bool) -> dict[str, Any]:
        """What the agent of a Node says."""
        runs = name in self.proxies
        self.rules[name] = 9 if runs else 0 if clean else self.rules[name]
        served = runs or name != self.broken
        return {
            "runs": runs, "tables": [], "chains": self.rules[name], "complete": name not in self.filling, "held": [], "legacy": [], "ipvs": False,
            "proxyAll": value_of(self.maps[CONFIG_MAP][AGENT_CONF], "antreaProxy.proxyAll") is True,
            "trouble": "" if served else "no answer", "endedConnections": self.ended.get(name, 0) if clean else 0,
        }  # fmt: skip

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.endswith("/exec"):
            return await self._exec(request)
        if request.method in ("PATCH", "POST", "DELETE"):
            body = json.loads(await request.text() or "{}")
            self._change(request.method, request.path, body)
            return web.json_response({})
        collection, _, name = request.path.rpartition("/")
        if collection == MAPS:
            found = self.maps.get(name)
            marks = {"meta.helm.sh/release-name": self.release} if self.release else {}
            config_map = {"metadata": {"annotations": marks}, "data": found}
            return web.json_response(config_map if found else {}, status=200 if found else 404)
        return web.json_response(
            {"items": self._listed(request.path, request.query.get("labelSelector", ""))}
        )

    def _listed(self, path: str, selector: str) -> list[dict[str, Any]]:
        def pod(name: str, kind: str) -> dict[str, Any]:
            return {
                "metadata": {"name": f"{kind}-{name}", "namespace": "kube-system"},
                "spec": {"nodeName": name},
            }

        if path.endswith("/daemonsets"):
            agents = {"metadata": {"name": "antrea-agent", "namespace": "kube-system"}}
            own = [] if self.deleted else [self.daemon_set()]
            return [agents] if "antrea" in selector else own
        if path == "/api/v1/nodes":
            return [{"metadata": {"name": name}} for name in self.labels]
        if path == "/api/v1/namespaces/kube-system/pods" and "antrea-agent" in selector:
            return [pod(name, "agent") for name in self.labels]
        return [pod(name, "kube-proxy") for name in self.proxies] if path.endswith("/pods") else []

    def _change(self, method: str, path: str, body: Any) -> None:
        name = path.rpartition("/")[2]
        if path.startswith("/api/v1/nodes/"):
            (value,) = body["metadata"]["labels"].values()
            self.labels[name] = {LABEL} if value else set()
        elif path.startswith(SETS):
            self.affinity = body[0].get("value")
            self.generation += 1
        elif method == "POST":
            self.maps[body["metadata"]["name"]] = body["data"]
        elif method == "DELETE":
            del self.maps[name]
        else:
            self.maps[name] |= body["data"]

    async def _exec(self, request: web.BaseRequest) -> web.StreamResponse:
        words = request.query.getall("command")
        name = request.path.split("/")[-2].removeprefix("agent-")
        assert words[:3] == ["antctl", "kube-proxy", "node"]
        if "--keep" in words:
            assert name not in self.proxies
            self.kept.append(name)
        told = json.dumps(self.node(name, clean="--clean" in words))
        socket = web.WebSocketResponse(protocols=PROTOCOLS[:1])
        await socket.prepare(request)
        await socket.send_bytes(bytes([STDOUT]) + told.encode())
        await socket.send_bytes(bytes([VERDICT]) + json.dumps({"status": "Success"}).encode())
        await socket.close()
        return socket


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(takeover, "STEP", 0.01)
    return World()


@asynccontextmanager
async def work(world: World, seconds: float = 60.0) -> AsyncIterator[tuple[Takeover, Cluster, list[str]]]:
    said: list[str] = []
    async with answering(world.answer) as url:
        cluster = await asyncio.to_thread(Cluster, Server(Access(url=url), 60.0))
        yield Takeover(cluster, said.append, seconds), cluster, said


async def test_services_are_taken_over_node_by_node_and_given_back(world: World) -> None:
    before = json.dumps(world.maps)
    async with work(world) as (takeover_, cluster, said):
        await asyncio.to_thread(takeover_.apply, API)
        assert (world.proxies, world.rules) == ([], {"n1": 0, "n2": 0})
        files = world.maps[CONFIG_MAP]
        assert value_of(files[AGENT_CONF], "antreaProxy.proxyAll") is True
        assert [value_of(files[file], "kubeAPIServerOverride") for file in (AGENT_CONF, CONTROLLER_CONF)] == [
            API,
            API,
        ]
        assert [line.split(":")[0] for line in said if line.startswith("Node")] == ["Node n1", "Node n2"]
        view = await asyncio.to_thread(cluster.view, "")
        assert all(node.is_free and not node.serves for node in view.nodes)
        changed = f"ConfigMap kube-system/{CONFIG_MAP} is changed."
        assert said.count(changed) == 1
        await asyncio.to_thread(takeover_.apply, "")  # again: nothing is left to do
        assert said.count(changed) == 1
        await asyncio.to_thread(takeover_.roll_back)
    assert (world.proxies, world.affinity) == (["n1", "n2"], None)
    assert world.labels == {"n1": set(), "n2": set()}
    assert world.maps[CONFIG_MAP] == {
        AGENT_CONF: AGENT_TEXT,
        CONTROLLER_CONF: '\nkubeAPIServerOverride: ""\n',
    }
    assert json.dumps({name: {} for name in world.maps}) == json.dumps(
        {name: {} for name in json.loads(before)}
    )


async def test_a_config_map_of_a_release_is_left_unless_the_conflict_is_accepted(world: World) -> None:
    world.release = "antrea"
    async with work(world) as (takeover_, _, said):
        with pytest.raises(Failure, match="is applied by Helm release antrea"):
            await asyncio.to_thread(takeover_.apply, API)
        assert (world.proxies, world.maps[CONFIG_MAP][AGENT_CONF], said) == (["n1", "n2"], AGENT_TEXT, [])
        values = await asyncio.to_thread(takeover_.apply, API, force_conflicts=True)
        assert values == {"antreaProxy": {"proxyAll": True}, "kubeAPIServerOverride": API}
        assert world.proxies == []
        # the edit is made: to resume needs no consent
        await asyncio.to_thread(takeover_.apply, API)
        values = await asyncio.to_thread(takeover_.roll_back)
    assert values == {"antreaProxy": {"proxyAll": False}, "kubeAPIServerOverride": ""}
    assert world.proxies == ["n1", "n2"]


async def test_a_release_that_has_the_values_is_taken_over_without_an_edit(world: World) -> None:
    world.release = "antrea"
    for file in (AGENT_CONF, CONTROLLER_CONF):
        world.maps[CONFIG_MAP][file] = f"antreaProxy: {{proxyAll: true}}\nkubeAPIServerOverride: {API}\n"
    before = dict(world.maps[CONFIG_MAP])
    async with work(world) as (takeover_, _, _said):
        await asyncio.to_thread(takeover_.apply, API)
        assert world.proxies == []
        await asyncio.to_thread(takeover_.roll_back)
    assert (world.proxies, world.maps[CONFIG_MAP]) == (["n1", "n2"], before)


async def test_a_plan_writes_the_values_of_the_chart(world: World, tmp_path: Path) -> None:
    world.release = "antrea"
    file, config = tmp_path / "values.yaml", tmp_path / "kubeconfig"
    async with answering(world.answer) as url:
        cluster = {"name": "c", "cluster": {"server": url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        users = [{"name": "u", "user": {}}]
        config.write_text(
            json.dumps({"clusters": [cluster], "contexts": [context], "users": users, "current-context": "c"})
        )
        words = [
            "-k",
            str(config),
            "kube-proxy",
            "takeover",
            "--plan",
            "--api-server",
            API,
            "--values",
            str(file),
        ]
        done = await asyncio.to_thread(CliRunner().invoke, antctl(mode.REMOTE), words, prog_name="antctl")
    assert done.exit_code == 1, done.output
    assert "is applied by Helm release antrea" in done.output
    text = f"antreaProxy:\n  proxyAll: true\nkubeAPIServerOverride: {API}\n"
    assert (file.read_text(), text in done.output) == (text, True)


async def test_connections_that_are_too_many_to_go_on_are_named(world: World) -> None:
    world.ended = {"n2": 7}
    async with work(world) as (takeover_, _, said):
        await asyncio.to_thread(takeover_.apply, API)
    assert [line for line in said if "connections" in line] == [
        "Node n2: 7 connections through IPVS end, since there were too many to hand over."
    ]


@pytest.mark.parametrize(("mode", "kept"), [("ipvs", ["n1", "n2"]), ("nftables", [])])
async def test_nodes_keep_routes_before_kube_proxy_in_mode_ipvs_is_back(
    world: World, mode: str, kept: list[str]
) -> None:
    world.maps["kube-proxy"] = {"config.conf": f"mode: {mode}"}
    async with work(world) as (takeover_, _, _said):
        await asyncio.to_thread(takeover_.apply, API)
        assert world.kept == []
        await asyncio.to_thread(takeover_.roll_back)
    assert (world.kept, world.proxies) == (kept, ["n1", "n2"])


async def test_agents_serve_all_until_kube_proxy_has_filled_its_chains(world: World) -> None:
    async with work(world, 0.5) as (takeover_, _, _said):
        await asyncio.to_thread(takeover_.apply, API)
        world.filling = {"n1"}
        with pytest.raises(Failure, match="kube-proxy on Node n1: it has not made its rules yet"):
            await asyncio.to_thread(takeover_.roll_back)
        assert world.proxies == ["n1"]
        assert value_of(world.maps[CONFIG_MAP][AGENT_CONF], "antreaProxy.proxyAll") is True
        world.filling = set()
        await asyncio.to_thread(takeover_.roll_back)
    assert world.proxies == ["n1", "n2"]


async def test_a_node_that_joined_keeps_its_connections_and_is_waited_for(world: World) -> None:
    world.maps["kube-proxy"] = {"config.conf": "mode: ipvs"}
    async with work(world, 0.5) as (takeover_, _, _said):
        await asyncio.to_thread(takeover_.apply, API)
        world.labels["n3"], world.rules["n3"], world.filling = set(), 0, {"n3"}
        with pytest.raises(Failure, match="kube-proxy on Node n3: it has not made its rules yet"):
            await asyncio.to_thread(takeover_.roll_back)
        assert world.kept == ["n1", "n2", "n3"]
        assert value_of(world.maps[CONFIG_MAP][AGENT_CONF], "antreaProxy.proxyAll") is True
        world.filling = set()
        await asyncio.to_thread(takeover_.roll_back)
    assert world.proxies == ["n1", "n2", "n3"]
    assert (NOTED in world.maps, world.affinity) == (False, None)


async def test_it_stops_at_the_first_node_that_is_not_served_and_goes_back(world: World) -> None:
    world.broken = "n1"
    async with work(world, 0.2) as (takeover_, _, _said):
        with pytest.raises(
            Failure, match=r"Services on Node n1 without kube-proxy: no answer; antctl kube-proxy"
        ):
            await asyncio.to_thread(takeover_.apply, API)
        assert (world.proxies, world.rules) == (["n2"], {"n1": 0, "n2": 9})
        await asyncio.to_thread(takeover_.roll_back)
    assert world.proxies == ["n1", "n2"]
    assert NOTED not in world.maps


async def test_what_a_kube_proxy_deleted_by_hand_has_left_is_removed(world: World) -> None:
    """By the documents of Kubernetes and upstream: DaemonSet and ConfigMap are deleted, and the rules stay."""
    world.deleted = True
    del world.maps["kube-proxy"]
    async with work(world, 0.5) as (takeover_, cluster, said):
        await asyncio.to_thread(takeover_.apply, API)
        view = await asyncio.to_thread(cluster.view, "")
        with pytest.raises(Failure, match="no take-over was applied"):
            await asyncio.to_thread(takeover_.roll_back)
    assert world.rules == {"n1": 0, "n2": 0}
    assert value_of(world.maps[CONFIG_MAP][AGENT_CONF], "antreaProxy.proxyAll") is True
    assert all(node.is_free and not node.serves for node in view.nodes)
    assert [line.split(":")[0] for line in said if line.startswith("Node")] == ["Node n1", "Node n2"]
    assert NOTED not in world.maps


async def test_a_roll_back_changes_nothing_when_the_daemon_set_was_deleted(world: World) -> None:
    async with work(world, 0.5) as (takeover_, _, _said):
        await asyncio.to_thread(takeover_.apply, API)
        world.deleted = True
        with pytest.raises(Failure, match="kubeadm init phase addon kube-proxy"):
            await asyncio.to_thread(takeover_.roll_back)
    assert world.labels == {"n1": set(), "n2": set()}
    assert value_of(world.maps[CONFIG_MAP][AGENT_CONF], "antreaProxy.proxyAll") is True


async def test_nothing_is_changed_while_something_is_in_the_way(world: World) -> None:
    world.maps["kube-proxy"] = {"config.conf": "mode: kernelspace"}
    async with work(world) as (takeover_, cluster, _said):
        assert len(list(blockers(await asyncio.to_thread(cluster.view, "")))) == 2
        with pytest.raises(Failure, match="nothing was changed:\n- kube-proxy runs in mode kernelspace"):
            await asyncio.to_thread(takeover_.apply, API)
        with pytest.raises(Failure, match="no take-over was applied"):
            await asyncio.to_thread(takeover_.roll_back)
    assert (world.affinity, world.maps[CONFIG_MAP][AGENT_CONF]) == (None, AGENT_TEXT)
