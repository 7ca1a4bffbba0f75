"""The cluster as a take-over sees and changes it, through kube-apiserver and commands in agents' containers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from antrea.antctl.config_owner import config_owner
from antrea.antctl.failure import Failure
from antrea.antctl.kube_proxy.plan import CONFIG_MAP, ClusterView, NodeView
from antrea.antctl.pod_exec import run_in_pod
from antrea.antctl.remote import AGENT_PODS, antrea_namespace
from antrea.antctl.request import ErrorResponse, Server, ask
from antrea.decoding import decode_json, decode_tree, guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

PROXY_NAMESPACE = "kube-system"
PROXY_PODS = "k8s-app=kube-proxy"
PROXY_CONFIG_MAP, PROXY_FILE = "kube-proxy", "config.conf"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
MERGE = "application/merge-patch+json"
MAX_CONCURRENT = 8
"""Nodes that are asked at the same time."""
NODE_TIMEOUT = 60.0
"""Seconds for a command in the container of an agent."""


class _Report(msgspec.Struct, frozen=True, rename="camel"):
    """Types of the fields of an agent's answer that are used; those with a default may be missing."""

    runs: bool
    tables: list[str]
    chains: int
    held: list[str]
    legacy: list[str]
    ipvs: bool
    proxy_all: bool
    trouble: str
    complete: bool = False
    ipvs_addresses: int = 0
    virtual_servers: int = 0
    ip_sets: int = 0
    ended_connections: int = 0
    listening: list[tuple[str, str, int]] = []


def report_of(text: str) -> dict[str, Any]:
    """Return what the agent of a Node printed of kube-proxy there. Raises Invalid if it is of another form."""
    what = "answer of its agent"
    report = decode_json(text, dict[str, Any], what)
    decode_tree(report, _Report, what)
    return report


class Cluster:
    """Raises Failure where it cannot be reached."""

    def __init__(self, kubernetes: Server) -> None:
        self.kubernetes = kubernetes
        self.namespace = antrea_namespace(kubernetes)

    def view(self, api_server: str) -> ClusterView:
        """All that a plan needs."""
        config = self._config_map(CONFIG_MAP, self.namespace)
        return ClusterView(
            daemon_set=self.daemon_set(),
            proxy_config=self.proxy_config(),
            files=config.get("data") or {},
            api_server=api_server,
            endpoints=self._endpoints(),
            nodes=self.nodes(),
            services=ask(self.kubernetes, "/api/v1/services", {})["items"],
            node_objects=ask(self.kubernetes, "/api/v1/nodes", {})["items"],
            namespace=self.namespace,
            owner=config_owner(config.get("metadata") or {}),
        )

    def daemon_set(self) -> dict[str, Any] | None:
        """kube-proxy's."""
        path = f"/apis/apps/v1/namespaces/{PROXY_NAMESPACE}/daemonsets"
        daemon_sets = ask(self.kubernetes, path, {"labelSelector": PROXY_PODS})["items"]
        if len(daemon_sets) > 1:
            names = ", ".join(row["metadata"]["name"] for row in daemon_sets)
            raise Failure(f"several DaemonSets have the label {PROXY_PODS}: {names}")
        return daemon_sets[0] if daemon_sets else None

    def proxy_nodes(self) -> set[str]:
        """Nodes with a Pod of kube-proxy, whatever its state."""
        path = f"/api/v1/namespaces/{PROXY_NAMESPACE}/pods"
        pods = ask(self.kubernetes, path, {"labelSelector": PROXY_PODS})["items"]
        return {pod["spec"].get("nodeName", "") for pod in pods}

    def config_map(self, name: str, namespace: str) -> Mapping[str, str] | None:
        """Return the data of a ConfigMap; None if it does not exist."""
        config_map = self._config_map(name, namespace)
        return dict(config_map.get("data") or {}) if config_map else None

    def _config_map(self, name: str, namespace: str) -> Mapping[str, Any]:
        """Return a ConfigMap; empty if it does not exist."""
        try:
            config_map: dict[str, Any] = ask(
                self.kubernetes, f"/api/v1/namespaces/{namespace}/configmaps/{name}", {}
            )
        except ErrorResponse as error:
            if error.status == 404:
                return {}
            raise
        return config_map

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """A merge patch."""
        ask(self.kubernetes, path, {}, body, method="PATCH", content=MERGE)

    def agents(self) -> dict[str, str]:
        """Pods of agents, as namespace/name, by Node."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"  # users of another one can give their Pods these labels
        pods = ask(self.kubernetes, path, {"labelSelector": AGENT_PODS})["items"]
        return {
            pod["spec"]["nodeName"]: f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in pods
            if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        }

    def nodes(self) -> list[NodeView]:
        """Every Node, as its agent sees it."""
        listed = ask(self.kubernetes, "/api/v1/nodes", {})["items"]
        names = sorted(node["metadata"]["name"] for node in listed)
        agents = self.agents()
        with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
            return list(pool.map(lambda name: self.node(name, agents), names))

    def node(self, name: str, agents: Mapping[str, str], *, act: str = "") -> NodeView:
        """Return the view of a Node after `clean` removed kube-proxy's state there, or `keep` kept established connections."""
        if name not in agents:
            return NodeView(name, {}, "no agent of Antrea runs there")
        command = ("antctl", "kube-proxy", "node", *((f"--{act}",) if act else ()))
        try:
            done = run_in_pod(
                *(self.kubernetes, agents[name], command), container="antrea-agent", seconds=NODE_TIMEOUT
            )
            if done.code:
                raise Failure(done.stderr.strip() or f"exit code {done.code}")
            return NodeView(name, report_of(done.stdout))
        except (Failure, Invalid) as error:
            message = error.format_message() if isinstance(error, Failure) else str(error)
            return NodeView(name, {}, f"its agent does not say what kube-proxy has there: {message}")

    def proxy_config(self) -> Mapping[str, Any]:
        data = self.config_map(PROXY_CONFIG_MAP, PROXY_NAMESPACE) or {}
        try:
            config = guarded(PROXY_FILE, yaml.safe_load, data.get(PROXY_FILE, ""))
        except Invalid as error:
            raise Failure(
                f"ConfigMap {PROXY_NAMESPACE}/{PROXY_CONFIG_MAP}, {PROXY_FILE}: not YAML: {error.why}"
            ) from error
        return config if isinstance(config, dict) else {}

    def _endpoints(self) -> list[str]:
        listed = ask(self.kubernetes, SLICES, {"labelSelector": "kubernetes.io/service-name=kubernetes"})
        addresses = set()
        for endpoint_slice in listed["items"]:
            for endpoint in endpoint_slice.get("endpoints") or ():
                for address in endpoint["addresses"]:
                    host = f"[{address}]" if ":" in address else address
                    addresses |= {f"{host}:{port['port']}" for port in endpoint_slice.get("ports") or ()}
        return sorted(addresses)
