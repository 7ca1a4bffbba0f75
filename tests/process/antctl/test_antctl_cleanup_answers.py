"""`antctl cleanup` before an API server whose Nodes run the Pods of a cleanup, or do not."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from click.testing import CliRunner
from loopback import answering

from antrea.antctl import mode
from antrea.antctl.cleanup import node_pods, uninstalled
from antrea.antctl.cleanup.command import CLUSTER, Request, clean
from antrea.antctl.cleanup.node_pods import Settings
from antrea.antctl.failure import Failure
from antrea.antctl.main import antctl
from antrea.antctl.request import Server
from antrea.outside.kube.access import Access

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.antctl.cleanup.node_pods import Removed

READY = [{"type": "Ready", "status": "True"}]
LOST = [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}]
DONE = '{"removed": "nftables table inet antrea"}\n{"kept": "datapath ovs-system", "why": "in use"}\n{"done": true}\n'
LINK = "node.antrea.io/link"
TLS = "/api/v1/namespaces/kube-system/secrets/antrea-controller-tls"
OBJECTS: dict[str, dict[str, Any]] = {
    "/api/v1/namespaces/kube-system/secrets/antrea-memberlist-keys": {"labels": {"app": "antrea"}},
    TLS: {},
    "/api/v1/namespaces/kube-system/configmaps/antrea-ca": {"labels": {"app": "antrea"}},
    "/api/v1/namespaces/flow-aggregator/secrets/flow-aggregator-ca-tls": {"labels": {"app": "flow-aggregator"}},
    "/apis/crd.antrea.io/v1beta1/antreaagentinfos/n1": {},
    "/apis/crd.antrea.io/v1beta1/antreaagentinfos/gone": {},
    "/apis/crd.antrea.io/v1beta1/antreacontrollerinfos/antrea-controller": {},
    "/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.controlplane.antrea.io": {},
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/egresses.crd.antrea.io": {},
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/others.example.com": {},
}  # fmt: skip
"""Metadata of objects, by path."""
LISTS = {path.rpartition("/")[0] for path in OBJECTS} | {
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
}


class World:
    """A cluster; `hung` are Nodes whose kubelet starts no Pod, and `logs` has what others' Pods print."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {
            "n1": {"annotations": {LINK: "x", "node.antrea.io/keep-ssh": "true"}, "conditions": READY},
            "n2": {"annotations": {}, "conditions": READY},
        }
        self.objects = {path: dict(meta) for path, meta in OBJECTS.items()}
        self.daemon_set: dict[str, Any] | None = None
        self.controller_namespace = "kube-system"
        self.agents: list[str] = []
        """Nodes of Pods of agents that have not ended."""
        self.hung: set[str] = set()
        self.unpulled: set[str] = set()
        self.logs: dict[str, str] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.deleted: list[str] = []
        self.patched: list[tuple[str, Any]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path, method = request.path, request.method
        if path == "/api/v1/nodes":
            return self.listed(self.node(name) for name in self.nodes)
        if path.startswith("/apis/apps/v1/"):
            there = [self.daemon_set] if path.endswith("daemonsets") and self.daemon_set else []
            return self.listed({"metadata": meta} for meta in there)
        if path.startswith("/api/v1/namespaces/kube-system/pods"):
            return await self.answer_pods(request)
        if method == "PATCH":
            self.patched.append((path, await request.json()))
            return web.json_response({})
        if path in LISTS:
            return self.listed(self.item(one) for one in self.objects if one.rpartition("/")[0] == path)
        if path in self.objects and method == "DELETE":
            del self.objects[path]
            self.deleted.append(path)
            return web.json_response({})
        return web.json_response(self.item(path)) if path in self.objects else web.Response(status=404)

    def listed(self, items: Iterable[dict[str, Any]]) -> web.Response:
        return web.json_response({"items": list(items)})

    def node(self, name: str) -> dict[str, Any]:
        node = self.nodes[name]
        meta = {"name": name, "labels": {"kubernetes.io/os": "linux"}, "annotations": node["annotations"]}
        return {"metadata": meta, "status": {"conditions": node["conditions"]}}

    def item(self, path: str) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        return {
            "metadata": {"name": name, **self.objects[path]},
            "podRef": {"namespace": self.controller_namespace},
            "spec": {"group": name.partition(".")[2]},
        }

    async def answer_pods(self, request: web.Request) -> web.StreamResponse:
        name = request.path.removeprefix("/api/v1/namespaces/kube-system/pods").strip("/")
        if request.method == "POST":
            pod = await request.json()
            node = pod["spec"]["nodeName"]
            self.pods[f"cleanup-{node}"] = pod
            return web.json_response(pod)
        if request.method == "DELETE":
            assert request.query["labelSelector"].startswith("app=antrea-cleanup,run=")
            self.pods.clear()
            return web.json_response({})
        if name:
            node = name.split("/")[0].removeprefix("cleanup-")
            return web.Response(text=self.logs.get(node, DONE))
        if request.query["labelSelector"].startswith("app=antrea,"):
            return self.listed({"metadata": {}, "spec": {"nodeName": node}} for node in self.agents)
        return self.listed(
            {"metadata": {"name": name}, "spec": pod["spec"], "status": self.status(pod["spec"]["nodeName"])}
            for name, pod in self.pods.items()
        )

    def status(self, node: str) -> dict[str, Any]:
        if node in self.hung:
            return {"phase": "Pending"}
        if node in self.unpulled:
            waiting = {"reason": "ErrImagePull", "message": "not\nfound"}
            return {
                "phase": "Pending",
                "containerStatuses": [{"image": "x:1", "state": {"waiting": waiting}}],
            }
        return {"phase": "Failed" if "failed" in self.logs.get(node, "") else "Succeeded"}


def request(*nodes: str, **changes: Any) -> Request:
    pods = Settings(
        namespace="kube-system",
        image="x:1",
        cni_bin="/opt/cni/bin",
        seconds=changes.pop("seconds", 5.0),
        dry_run=changes.pop("dry_run", False),
        logs=False,
    )
    return Request(
        nodes=nodes, crds=changes.pop("crds", False), wait_seconds=changes.pop("wait", None), pods=pods
    )


async def cleaned(world: World, wanted: Request) -> dict[str, Removed]:
    async with answering(world.answer) as url:
        rows = await asyncio.to_thread(clean, Server(Access(url=url), 10.0), wanted)
    return {row.name: row for row in rows}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    for module in (node_pods, uninstalled):
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(node_pods, "GRACE_SECONDS", 0.1)
    return World()


async def test_nodes_come_first_and_then_what_belongs_to_the_cluster(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = await cleaned(world, request())
    assert [row.error for row in rows.values()] == [""] * 3
    assert rows["n1"].removed == [
        "nftables table inet antrea",
        f"annotations {LINK} of Node n1",
        "AntreaAgentInfo n1",
    ]
    assert (rows["n2"].removed, rows["n2"].kept) == (
        ["nftables table inet antrea"],
        ["datapath ovs-system: in use"],
    )
    assert rows[CLUSTER].removed == [
        "APIService v1beta2.controlplane.antrea.io",
        "AntreaAgentInfo gone",
        "AntreaControllerInfo antrea-controller",
        "Secret kube-system/antrea-memberlist-keys",
        "ConfigMap kube-system/antrea-ca",
        "Secret flow-aggregator/flow-aggregator-ca-tls",
    ]
    assert world.patched == [("/api/v1/nodes/n1", {"metadata": {"annotations": {LINK: None}}})]
    # a Secret that a user provided has no label, and CRDs go by a flag only
    assert {path.rpartition("/")[2] for path in world.objects} == {
        "antrea-controller-tls", "egresses.crd.antrea.io", "others.example.com",
    }  # fmt: skip
    assert world.pods == {}
    assert "Node n1: removed 1 things\n" in capsys.readouterr().err


async def test_definitions_go_by_a_flag_without_the_webhook_that_converts(world: World) -> None:
    rows = await cleaned(world, request(crds=True))
    assert "CustomResourceDefinition egresses.crd.antrea.io" in rows[CLUSTER].removed
    assert world.patched[-1][1] == {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
    assert "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/others.example.com" in world.objects


async def test_one_node_is_cleaned_alone(world: World) -> None:
    rows = await cleaned(world, request("n1"))
    assert list(rows) == ["n1"]
    assert world.deleted == ["/apis/crd.antrea.io/v1beta1/antreaagentinfos/n1"]
    with pytest.raises(Failure, match="there is no Node n3; the Nodes are n1, n2"):
        await cleaned(world, request("n3"))


async def test_a_dry_run_deletes_and_changes_nothing(world: World) -> None:
    rows = await cleaned(world, request(crds=True, dry_run=True))
    assert len(rows[CLUSTER].removed) == 7
    assert (world.deleted, world.patched) == ([], [])


async def test_a_node_that_does_not_answer_costs_its_deadline_and_is_named(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.nodes["n2"]["conditions"] = LOST
    world.hung = {"n2"}
    loop = asyncio.get_running_loop()
    began = loop.time()
    rows = await cleaned(world, request(seconds=1.0))
    assert loop.time() - began < 4
    assert rows["n1"].error == ""
    lost = "the Node is not Ready: Kubelet stopped posting node status."
    assert rows["n2"].error == f"not done within 1 s: {lost}"
    assert f"Node n2: removed 0 things; failed: not done within 1 s: {lost}" in capsys.readouterr().err
    assert world.pods == {}
    assert "ConfigMap kube-system/antrea-ca" in rows[CLUSTER].removed


async def test_failures_of_a_node_are_told(world: World) -> None:
    world.logs["n1"] = '{"removed": "a"}\n{"failed": "bridge br-phy", "why": "no such device"}\n'
    world.unpulled = {"n2"}
    rows = await cleaned(world, request())
    assert (rows["n1"].removed[0], rows["n1"].error) == ("a", "bridge br-phy: no such device")
    assert rows["n2"].error == "image x:1: ErrImagePull: not found (--image names another one)"
    world.logs["n1"] = "Traceback failed\n"
    rows = await cleaned(world, request("n1"))
    assert rows["n1"].error == "Traceback failed"


@pytest.mark.parametrize(
    ("marks", "first"),
    [
        ({}, "run kubectl delete on the manifest that it was installed with, without the CRDs (docs/removal.md)"),
        ({"annotations": {"meta.helm.sh/release-name": "net"}}, "run helm uninstall net --namespace kube-system --wait"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "cni:x"}}, "delete Argo CD application cni"),
    ],
)  # fmt: skip
async def test_it_refuses_while_antrea_is_installed(world: World, marks: dict[str, Any], first: str) -> None:
    world.daemon_set = {"name": "antrea-agent", "namespace": "kube-system", **marks}
    with pytest.raises(Failure) as failed:
        await cleaned(world, request())
    assert failed.value.message == (
        f"nothing was removed: Antrea is installed: DaemonSet kube-system/antrea-agent exists. First {first}"
    )
    assert (world.pods, world.deleted, world.patched) == ({}, [], [])


async def test_a_daemon_set_of_another_namespace_with_the_same_labels_is_not_antrea(world: World) -> None:
    world.daemon_set = {"name": "antrea-agent", "namespace": "tenant"}
    assert (await cleaned(world, request()))["n1"].error == ""


async def test_the_namespace_that_the_controller_has_reported_counts(world: World) -> None:
    world.daemon_set = {"name": "antrea-agent", "namespace": "antrea-system"}
    world.controller_namespace = "antrea-system"
    with pytest.raises(Failure, match="DaemonSet antrea-system/antrea-agent exists"):
        await cleaned(world, request())


async def test_pods_of_agents_that_end_are_waited_for(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.agents = ["n1", "n2"]
    world.nodes["n2"]["conditions"] = LOST
    with pytest.raises(
        Failure, match=r"nothing was removed: the Pods of agents on n1 have not ended yet \(--wait"
    ):
        await cleaned(world, request())
    with pytest.raises(Failure, match=r"waited 0\.1 s, and still the Pods of agents on n1 have not ended"):
        await cleaned(world, request(wait=0.1))
    waited = asyncio.create_task(cleaned(world, request(wait=30.0)))
    await asyncio.sleep(0.1)
    assert not waited.done()
    # on a Node that is lost nobody ends the Pod
    world.agents = ["n2"]
    rows = await waited
    assert rows["n1"].error == ""
    assert "waiting: the Pods of agents on n1 have not ended yet" in capsys.readouterr().err


async def test_a_take_over_of_services_that_was_not_rolled_back_is_told(world: World) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/antrea-kube-proxy-takeover"
    world.objects[path] = {}
    rows = await cleaned(world, request())
    (line,) = rows[CLUSTER].kept
    assert line.startswith("ConfigMap kube-system/antrea-kube-proxy-takeover: kube-proxy was not given back")
    assert path in world.objects


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "exactly one of --node and --all has to be given"),
        (("--node", "n1", "--all"), "exactly one of --node and --all has to be given"),
        (("--node", "n1", "--crds"), "--crds concerns the whole cluster: it needs --all"),
        (("--all", "--node-timeout", "0s"), "--node-timeout: 0s is less than 1s"),
        (("--all", "--node-timeout", "soon"), "--node-timeout: "),
    ],
)
def test_bad_options_are_told(words: tuple[str, ...], error: str) -> None:
    result = CliRunner().invoke(antctl(mode.REMOTE), ["cleanup", *words], prog_name="antctl")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {error}")


async def test_the_answer_is_printed_as_json_and_a_failed_node_is_exit_code_1(world: World) -> None:
    world.unpulled = {"n2"}
    async with answering(world.answer) as url:
        words = ("-m", "antrea.antctl.main", "cleanup", "--all", "-o", "json", "-s", url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        stdout, stderr = await process.communicate()
    assert process.returncode == 1, stderr
    rows = json.loads(stdout)
    assert [(row["name"], bool(row["error"])) for row in rows] == [
        ("n1", False),
        ("n2", True),
        (CLUSTER, False),
    ]
    assert stderr.decode().splitlines()[0] == "Node n1: removed 1 things"
