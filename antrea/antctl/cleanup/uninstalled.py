"""Whether Antrea is uninstalled: its programs would make again what a cleanup removes, and use it meanwhile."""

from __future__ import annotations

import time
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from antrea.antctl.cleanup.node_pods import not_ready
from antrea.antctl.config_owner import config_owner
from antrea.antctl.failure import Failure
from antrea.antctl.remote import reported_namespace
from antrea.antctl.request import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from antrea.antctl.request import Server

LOOK_SECONDS: Final = 0.5
PROGRAMS: Final = (("DaemonSet", "daemonsets", "agent"), ("Deployment", "deployments", "controller"))


def require_uninstalled(server: Server, namespace: str, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Raises Failure that names what is installed, and the command that removes it."""
    if why := installed(server, namespace) or ending(server, namespace, nodes):
        raise Failure(f"nothing was removed: {why}")


def wait_uninstalled(
    server: Server,
    namespace: str,
    nodes: Sequence[Mapping[str, Any]],
    *,
    seconds: float,
    say: Callable[[str], None],
) -> None:
    """Wait until nothing of Antrea is installed; each change is a line. Raises Failure after `seconds`."""
    end, said = time.monotonic() + seconds, ""
    while why := installed(server, namespace) or ending(server, namespace, nodes):
        if time.monotonic() > end:
            raise Failure(f"nothing was removed: waited {seconds:g} s, and still {why}")
        if why != said:
            say(f"waiting: {why}")
            said = why
        time.sleep(LOOK_SECONDS)


def installed(server: Server, namespace: str) -> str:
    """Return which program of Antrea is installed, and what removes it; empty if none is. Raises Failure.

    In `namespace`, and in the one that the controller has reported. Users of other Namespaces can create workloads with the same labels.
    """
    places = {namespace, reported_namespace(server) or namespace}
    for kind, plural, component in PROGRAMS:
        query = {"labelSelector": f"app=antrea,component=antrea-{component}"}
        for item in ask(server, f"/apis/apps/v1/{plural}", query)["items"]:
            meta = item["metadata"]
            if meta["namespace"] in places:
                name = f"{kind} {meta['namespace']}/{meta['name']}"
                return f"Antrea is installed: {name} exists. First {uninstall(meta)}"
    return ""


def uninstall(meta: Mapping[str, Any]) -> str:
    """Return how to remove the installation that an object belongs to."""
    owner = config_owner(meta)
    if owner is None:
        return "run kubectl delete on the manifest that it was installed with, without the CRDs (docs/removal.md)"
    if owner.kind == "Helm release":
        return f"run helm uninstall {quote(owner.name)} --namespace {meta['namespace']} --wait"
    return f"delete {owner}"


def ending(server: Server, namespace: str, nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return which Pods of agents have not ended yet; those on Nodes that are not Ready do not count, because kubelet does not end them. Raises Failure."""
    ready = {node["metadata"]["name"] for node in nodes if not not_ready(node)}
    query = {"labelSelector": "app=antrea,component=antrea-agent"}
    pods = ask(server, f"/api/v1/namespaces/{namespace}/pods", query)["items"]
    names = sorted(node for pod in pods if (node := pod["spec"].get("nodeName", "")) in ready)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    if not names:
        return ""
    return f"the Pods of agents on {', '.join(names[:3])}{more} have not ended yet (--wait-for-uninstall waits for them)"
