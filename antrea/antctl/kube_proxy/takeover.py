"""Applies a take-over Node by Node, and rolls it back by what it has noted in a ConfigMap.

Agents serve all before kube-proxy goes, and until it is back: whatever fails leaves Nodes with at least one of both.
"""

from __future__ import annotations

import copy
import json
import time
from typing import TYPE_CHECKING, Any

from antrea.antctl.failure import Failure
from antrea.antctl.kube_proxy.cluster import PROXY_NAMESPACE, Cluster
from antrea.antctl.kube_proxy.config_edit import value_of, with_value
from antrea.antctl.kube_proxy.plan import (
    AGENT_CONF,
    CONFIG_MAP,
    CONTROLLER_CONF,
    LABEL,
    OVERRIDE,
    NodeView,
    blockers,
    chart_values,
)
from antrea.antctl.request import ask
from antrea.decoding import guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NOTED = "antrea-kube-proxy-takeover"
"""A ConfigMap in Antrea's Namespace: what was changed, and what it was before."""
PROXY_ALL = "antreaProxy.proxyAll"
VALUES = ((AGENT_CONF, PROXY_ALL), (AGENT_CONF, OVERRIDE), (CONTROLLER_CONF, OVERRIDE))
SECONDS = 300.0
"""In which agents take up a configuration, and Pods of kube-proxy come and go."""
STEP = 1.0
GONE = "the DaemonSet of kube-proxy is gone: make it again first, by kubeadm init phase addon kube-proxy or from a backup"
KEPT = {"key": LABEL, "operator": "Exists"}


def recorded(data: Mapping[str, str]) -> dict[str, Any]:
    """Values of the ConfigMap. Raises what a decoder raises, KeyError, ValueError."""
    record = {name: json.loads(data[name]) for name in ("affinity", "nodes", "values")}
    affinity, nodes, values = record.values()
    if not (affinity is None or isinstance(affinity, dict)) or not isinstance(nodes, list):
        raise ValueError("affinity is not an object, or nodes is not a list")
    if missing := [f"{file} {path}" for file, path in VALUES if f"{file} {path}" not in values]:
        raise ValueError(f"values has no {missing[0]}")
    return record


class Takeover:
    """Prints each step. Raises Failure at the first that fails."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None], seconds: float = SECONDS) -> None:
        self._cluster, self._say, self._seconds = cluster, say, seconds

    def apply(self, api_server: str, *, force_conflicts: bool = False) -> dict[str, Any]:
        """Move from kube-proxy to AntreaProxy, and return the chart's values for it; a second call resumes.

        If kube-proxy was deleted by hand, its leftover state is removed.
        """
        view = self._cluster.view(api_server)
        if blocked := list(blockers(view, force_conflicts=force_conflicts)):
            raise Failure("nothing was changed:\n" + "\n".join(f"- {line}" for line in blocked))
        noted: Mapping[str, Any] = {}
        if (proxy := view.daemon_set) is not None:
            if self._cluster.config_map(NOTED, self._cluster.namespace) is None:
                self._note(proxy, view.files)
            noted = self._noted()
        wanted: list[tuple[str, str, str | bool]] = [(AGENT_CONF, PROXY_ALL, True)]
        if api_server:
            wanted += [(file, OVERRIDE, api_server) for file in (AGENT_CONF, CONTROLLER_CONF)]
        self._configure(view.files, wanted)
        self._wait_agents(proxy_all=True)
        if proxy is not None:
            self._bind(proxy, noted)
        for node in view.nodes:
            self._take_over(node.name)
        self._say("AntreaProxy serves all Services on every Node.")
        return chart_values(proxy_all=True, override=view.override)

    def roll_back(self) -> dict[str, Any]:
        """Move from AntreaProxy back to kube-proxy, and return the chart's values for it; a second call resumes.

        The values are those that `apply` recorded. They are restored whatever applies the ConfigMap: should it set
        proxyAll again, both proxies serve.
        """
        noted = self._noted()
        if self._cluster.daemon_set() is None:
            raise Failure(f"nothing was changed: {GONE}")
        nodes = self._cluster.nodes()
        there, had = {node.name for node in nodes}, noted["nodes"]
        names = [name for name in had if name in there]
        for name in names:
            self._restore_kube_proxy(name)
        for node in nodes:
            if node.name not in had and not node.unseen:
                self._keep(node.name)  # one that has joined gets kube-proxy by the affinity
        self._set_affinity(noted["affinity"])
        for name in sorted(self._cluster.proxy_nodes() & there):
            self._wait_proxy(name)
        for name in names:
            self._label(name, on=False)
        before = noted["values"]
        wanted = [(file, path, before[f"{file} {path}"]) for file, path in VALUES]
        files = self._cluster.config_map(CONFIG_MAP, self._cluster.namespace) or {}
        self._configure(files, wanted)
        self._wait_agents(proxy_all=bool(before[f"{AGENT_CONF} {PROXY_ALL}"]))
        path = f"/api/v1/namespaces/{self._cluster.namespace}/configmaps/{NOTED}"
        ask(self._cluster.kubernetes, path, {}, method="DELETE")
        self._say("kube-proxy serves Services as before the take-over.")
        override = str(before[f"{AGENT_CONF} {OVERRIDE}"])
        return chart_values(proxy_all=bool(before[f"{AGENT_CONF} {PROXY_ALL}"]), override=override)

    def _bind(self, proxy: Mapping[str, Any], noted: Mapping[str, Any]) -> None:
        """The DaemonSet to Nodes with the label, which all have that it runs on."""
        affinity = only_labelled(noted["affinity"])
        if proxy["spec"]["template"]["spec"].get("affinity") != affinity:
            for name in noted["nodes"]:
                self._label(name, on=True)
            self._set_affinity(affinity)

    def _noted(self) -> Mapping[str, Any]:
        """Return the record from before the removal of kube-proxy. Raises Failure."""
        noted = self._cluster.config_map(NOTED, self._cluster.namespace)
        if noted is None:
            raise Failure(
                f"there is no ConfigMap {self._cluster.namespace}/{NOTED}: no take-over was applied"
            )
        try:
            return guarded(f"ConfigMap {self._cluster.namespace}/{NOTED}", recorded, noted)
        except Invalid as error:
            raise Failure(f"nothing was changed: {error}") from error

    def _note(self, proxy: Mapping[str, Any], files: Mapping[str, str]) -> None:
        values = {
            f"{file} {path}": value_of(files.get(file, ""), path) or empty(path) for file, path in VALUES
        }
        affinity = proxy["spec"]["template"]["spec"].get("affinity")
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NOTED},
            "data": {
                "affinity": json.dumps(affinity),
                "nodes": json.dumps(sorted(self._cluster.proxy_nodes())),
                "values": json.dumps(values),
            },
        }
        ask(
            self._cluster.kubernetes,
            f"/api/v1/namespaces/{self._cluster.namespace}/configmaps",
            {},
            body,
            method="POST",
        )
        self._say(f"ConfigMap {self._cluster.namespace}/{NOTED} has what --rollback needs.")

    def _configure(self, files: Mapping[str, str], wanted: list[tuple[str, str, str | bool]]) -> None:
        changed = dict(files)
        try:
            for file, path, value in wanted:
                if (value_of(changed.get(file, ""), path) or empty(path)) != value:
                    changed[file] = with_value(changed.get(file, ""), path, value)
        except Invalid as error:
            raise Failure(f"ConfigMap {CONFIG_MAP} is not YAML: {error.why}") from error
        if changed == files:
            return
        self._cluster.patch(
            f"/api/v1/namespaces/{self._cluster.namespace}/configmaps/{CONFIG_MAP}", {"data": changed}
        )
        self._say(f"ConfigMap {self._cluster.namespace}/{CONFIG_MAP} is changed.")

    def _wait_agents(self, *, proxy_all: bool) -> None:
        def same() -> str:
            late = [
                node.unseen or f"Node {node.name}"
                for node in self._cluster.nodes()
                if node.unseen or node.report["proxyAll"] != proxy_all
            ]
            return ", ".join(late)

        self._wait(f"all agents to have {PROXY_ALL}: {str(proxy_all).lower()} in effect", same)
        self._say(f"All agents have {PROXY_ALL}: {str(proxy_all).lower()} in effect.")

    def _set_affinity(self, affinity: Any) -> None:
        proxy = self._cluster.daemon_set()
        if proxy is None:
            raise Failure(GONE)
        name = proxy["metadata"]["name"]
        if proxy["spec"]["template"]["spec"].get("affinity") == affinity:
            return
        path = f"/apis/apps/v1/namespaces/{PROXY_NAMESPACE}/daemonsets/{name}"
        operation = {"op": "add", "path": "/spec/template/spec/affinity", "value": affinity}
        body = [operation if affinity is not None else {"op": "remove", "path": operation["path"]}]
        ask(self._cluster.kubernetes, path, {}, body, method="PATCH", content="application/json-patch+json")
        self._wait(f"the roll of DaemonSet {name}", self._rolling)
        self._say(f"DaemonSet {PROXY_NAMESPACE}/{name} has its new affinity.")

    def _rolling(self) -> str:
        proxy = self._cluster.daemon_set() or {}
        status, wanted = proxy.get("status", {}), proxy.get("status", {}).get("desiredNumberScheduled", 0)
        if status.get("observedGeneration", 0) < proxy.get("metadata", {}).get("generation", 1):
            return "not observed"
        done = min(status.get("updatedNumberScheduled", 0), status.get("numberReady", 0))
        return "" if done >= wanted else f"{done} of {wanted} Pods are new and ready"

    def _take_over(self, name: str) -> None:
        self._label(name, on=False)
        self._wait(f"the end of kube-proxy on Node {name}", lambda: self._proxy_there(name))
        if ended := self._node(name, "clean").report.get("endedConnections"):
            self._say(
                f"Node {name}: {ended} connections through IPVS end, since there were too many to hand over."
            )
        self._wait(f"Services on Node {name} without kube-proxy", lambda: self._unserved(name))
        self._say(f"Node {name}: kube-proxy and its rules are gone, Services are served.")

    def _label(self, name: str, *, on: bool) -> None:
        self._cluster.patch(
            f"/api/v1/nodes/{name}", {"metadata": {"labels": {LABEL: "true" if on else None}}}
        )

    def _proxy_there(self, name: str) -> str:
        if name in self._cluster.proxy_nodes():
            return "its Pod is there"
        return "its process runs" if self._node(name).report["runs"] else ""

    def _unserved(self, name: str) -> str:
        node = self._node(name)
        return node.serves or ("" if node.is_free else "rules of kube-proxy are left")

    def _restore_kube_proxy(self, name: str) -> None:
        self._keep(name)
        self._label(name, on=True)
        self._wait_proxy(name)
        self._say(f"Node {name}: kube-proxy is back.")

    def _keep(self, name: str) -> None:
        if self._cluster.proxy_config().get("mode") == "ipvs" and not self._node(name).report["runs"]:
            self._node(name, "keep")

    def _wait_proxy(self, name: str) -> None:
        self._wait(f"kube-proxy on Node {name}", lambda: self._proxy_lacks(name))

    def _proxy_lacks(self, name: str) -> str:
        report = self._node(name).report
        if not report["runs"]:
            return "it does not run"
        return "" if report["complete"] else "it has not made its rules yet"

    def _node(self, name: str, act: str = "") -> NodeView:
        node = self._cluster.node(name, self._cluster.agents(), act=act)
        if node.unseen:
            raise Failure(f"Node {name}: {node.unseen}")
        return node

    def _wait(self, what: str, lacks: Callable[[], str]) -> None:
        """Wait until `lacks` returns nothing. Raises Failure."""
        deadline = time.monotonic() + self._seconds
        while why := lacks():
            if time.monotonic() > deadline:
                back = "antctl kube-proxy takeover --rollback gives all back"
                raise Failure(f"waited {self._seconds:g} s for {what}: {why}; {back}")
            time.sleep(STEP)


def empty(path: str) -> str | bool:
    """Return the value that stands for an unset key."""
    return False if path == PROXY_ALL else ""


def only_labelled(affinity: Mapping[str, Any] | None) -> dict[str, Any]:
    """The affinity of Pods that run only on Nodes with the label, of those on which they ran before."""
    limited: dict[str, Any] = copy.deepcopy(dict(affinity or {}))
    node = limited.setdefault("nodeAffinity", {})
    required = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    required["nodeSelectorTerms"] = required.get("nodeSelectorTerms") or [{}]
    for term in required["nodeSelectorTerms"]:
        term["matchExpressions"] = [*term.get("matchExpressions", ()), KEPT]
    return limited
