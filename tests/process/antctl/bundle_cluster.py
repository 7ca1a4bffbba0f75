"""A cluster on loopback, as antctl supportbundle meets it: kube-apiserver, a controller, agents of two Nodes of three."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from loopback import client_of

from antrea.agent.api.certificate import certificate
from antrea.agent.api.server import AgentApi
from antrea.agent.api.view import AgentView
from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.features.framework.config_validation import accept_agent
from antrea.features.registry.api_resources import SUPPORT_BUNDLES
from antrea.outside.apiserver.authentication import Authentication
from antrea.outside.apiserver.authorization import Authorization
from antrea.outside.apiserver.objects import Objects
from antrea.outside.apiserver.server import Server
from antrea.outside.listener.listening_socket import listen
from antrea.outside.support_bundle.plan import Order
from antrea.outside.support_bundle.server import SupportBundles
from antrea.outside.tls.server_context import self_signed, server_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from antrea.outside.kube.client import Kube

PAIR, SERVING = certificate(), self_signed(("antrea.kube-system.svc",), ())
PLANTED = "planted-secret"
TOKEN = "eyJh-token-of-antctl"
CRD, META = "/apis/crd.antrea.io/v1beta1", {"namespace": "kube-system"}
KUBECONFIG = {
    "apiVersion": "v1",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "users": [{"name": "u", "user": {"token": "anna"}}],
}


class NoSwitch:
    """Stands where ovs-ofctl stands, without a switch."""

    up = False

    async def lines(self, command: str, *_: str) -> AsyncIterator[str]:
        if not self.up:
            raise Unavailable("OVS")
        yield command


def lists(
    agents: Mapping[str, tuple[int, str]], controller: tuple[int, str]
) -> dict[str, list[dict[str, Any]]]:
    """Objects by path of their collection; programs by Node, with port and certificate."""
    env = [{"name": "DB_PASSWORD", "value": PLANTED}, {"name": "LEVEL", "value": "4"}]
    return {
        "/api/v1/nodes": [
            {
                "metadata": {"name": name, "labels": {"zone": zone}},
                "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]},
            }
            for name, zone in (("master", "a"), ("worker-1", "a"), ("worker-2", "b"), ("worker-3", "b"))
        ],
        f"{CRD}/antreaagentinfos": [
            {
                "metadata": {"name": name},
                "nodeRef": {"name": name},
                "apiPort": port,
                "apiCABundle": base64.b64encode(pem.encode()).decode(),
            }
            for name, (port, pem) in agents.items()
        ],
        f"{CRD}/antreacontrollerinfos": [
            {
                "metadata": {"name": "antrea-controller"},
                "podRef": {"name": "antrea-controller-x", **META},
                "nodeRef": {"name": "master"},
                "apiPort": controller[0],
            }
        ],
        "/api/v1/namespaces/kube-system/configmaps": [
            {"metadata": {"name": "antrea-ca", **META}, "data": {"ca.crt": controller[1]}},
            {"metadata": {"name": "antrea-config", **META}, "data": {"antrea-agent.conf": f"apiToken: {PLANTED}\n"}},
        ],
        "/apis/apps/v1/daemonsets": [{"metadata": {"name": "antrea-agent", **META}}],
        "/apis/apps/v1/deployments": [],
        "/apis/apps/v1/replicasets": [],
        "/api/v1/pods": [{"metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": [{"name": "a", "env": env}]}}],
        "/api/v1/namespaces/kube-system/pods": [
            {
                "metadata": {"name": name, **META},
                "spec": {"nodeName": node, "initContainers": [{"name": "install-cni"}], "containers": [{"name": container}]},
            }
            for name, node, container in (
                ("antrea-agent-1", "worker-1", "antrea-agent"),
                ("antrea-agent-2", "worker-2", "antrea-agent"),
                ("antrea-controller-x", "master", "antrea-controller"),
            )
        ],
    }  # fmt: skip


class Cluster:
    """What kube-apiserver answers, and who asked it for what."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.lists: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[tuple[str, str]] = []
        self.credentials: set[str] = set()
        """That agents were shown."""
        self.away: set[str] = set()
        """Paths that cannot be had."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        if request.path in self.away:
            return web.json_response({"kind": "Status", "message": "etcd is away"}, status=500)
        if request.method == "POST":
            return web.json_response(self._posted(request.path, json.loads(await request.read())), status=201)
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.Event().wait()
        if request.path.endswith("/log"):
            return web.Response(text=f'I1 x] "Login" password="{PLANTED}" user="anna"\n')
        collection, _, name = request.path.rpartition("/")
        if request.path in self.lists:
            return self._list(request)
        found = [one for one in self.lists.get(collection, []) if one["metadata"]["name"] == name]
        return web.json_response(
            found[0] if found else {"kind": "Status", "message": "no"}, status=200 if found else 404
        )

    def _list(self, request: web.Request) -> web.Response:
        found = self.lists[request.path]
        key, _, value = request.query.get("labelSelector", "").partition("=")
        if request.path == "/api/v1/nodes" and key:
            found = [one for one in found if one["metadata"]["labels"].get(key) == value]
        # two on a page
        start = int(request.query.get("continue", "0"))
        meta = {"resourceVersion": "1", **({"continue": str(start + 2)} if found[start + 2 :] else {})}
        return web.json_response({"metadata": meta, "items": found[start : start + 2]})

    def _posted(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/serviceaccounts/antctl/token"):
            return {"status": {"token": TOKEN}}
        if path.endswith("/tokenreviews"):
            self.credentials.add(body["spec"]["token"])
            known = {"authenticated": True, "user": {"username": "antctl"}}
            return {"status": known}
        return {"status": {"allowed": True}}


def controller_server(folder: Path, kube: Kube) -> Server:
    """A program that serves the controller's bundle."""

    async def contents() -> Order:
        return Order("", {"controllerinfo": {"version": "v1"}})

    bundles = SupportBundles("controller", contents, token_file=folder / "token", folder=folder)
    return Server(
        Authentication("own", kube),
        Authorization((), kube),
        Objects((SUPPORT_BUNDLES,), bundles, bundles.streams),
        handlers={},
        openapi={},
    )


@asynccontextmanager
async def bundle_cluster(folder: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(folder)
    config = AgentConfig(api_port=0)
    async with client_of(cluster.serve) as kube:
        server = {"clusters": [{"name": "c", "cluster": {"server": kube.access.url}}]}
        cluster.kubeconfig.write_text(json.dumps({**KUBECONFIG, **server}))
        view = AgentView(lambda: InEffect("", config, accept_agent(config)), Facts(), NoSwitch(), {})
        cluster.lists["/api/v1/namespaces/kube-system/configmaps"] = []
        agents = [AgentApi(view, PAIR, kube, token_file=folder / f"token-{number}") for number in (1, 2)]
        listening = listen(0)
        tasks = [asyncio.create_task(agent.run()) for agent in agents]
        tasks.append(asyncio.create_task(controller_server(folder, kube).run(listening, server_tls(SERVING))))
        try:
            await asyncio.gather(*(agent.serves.wait() for agent in agents))
            places = {
                "master": (agents[0].port, PAIR.certificate_pem),
                "worker-1": (agents[1].port, PAIR.certificate_pem),
                # nobody listens there
                "worker-2": (1, PAIR.certificate_pem),
            }
            cluster.lists = lists(places, (listening.getsockname()[1], SERVING.certificate_pem))
            yield cluster
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
