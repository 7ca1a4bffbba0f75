"""A small shop: client and web in Namespace a, db in b, and policies as users write them."""

from __future__ import annotations

from typing import Any

from antrea.explain.answer import Answer, answer, packet_of
from antrea.explain.objects import objects
from antrea.explain.world import Proxy, World

Object = dict[str, Any]


def pod(space: str, name: str, ip: str, node: str = "n1", **more: Any) -> Object:
    """Labelled app=NAME, with port http 8080/tcp."""
    ports = [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    spec = {"nodeName": node, "containers": [{"ports": ports}], **more}
    meta = {"namespace": space, "name": name, "labels": {"app": name}}
    return {"metadata": meta, "spec": spec, "status": {"podIPs": [{"ip": ip}] if ip else []}}


PODS = [
    pod("a", "client", "10.0.0.11"),
    pod("a", "web", "10.0.0.12"),
    pod("b", "db", "10.0.1.13", "n2"),
    pod("b", "host", "192.0.2.1", "n1", hostNetwork=True),
]
NODES: list[Object] = [
    {
        "metadata": {"name": name, "labels": {"node": name}},
        "spec": {"podCIDR": f"10.0.{number}.0/24"},
        "status": {"addresses": [{"type": "InternalIP", "address": f"192.0.2.{number + 1}"}]},
    }
    for number, name in enumerate(("n1", "n2"))
]
NAMESPACES = [{"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}} for name in "ab"]


def kube(name: str, space: str = "a", **spec: Any) -> Object:
    return {"metadata": {"namespace": space, "name": name, "uid": name}, "spec": spec}


def native(name: str, *ingress: Object, space: str = "", created: str = "", **spec: Any) -> Object:
    """For web, in tier application with priority 5, unless something else is said."""
    meta = {"namespace": space, "name": name, "uid": name, "creationTimestamp": created}
    applied = [{"podSelector": {"matchLabels": {"app": "web"}}}]
    given = {"priority": 5, "appliedTo": applied, "ingress": list(ingress), **spec}
    return {"metadata": meta, "spec": given}


def rule(action: str, **more: Any) -> Object:
    return {"action": action, "name": action.lower(), **more}


def world(proxy: Proxy | None = None, **found: list[Object]) -> World:
    return World(objects({"pods": PODS, "nodes": NODES, "namespaces": NAMESPACES, **found}), proxy)


def ask(found: World, source: str = "a/client", destination: str = "a/web", port: str = "80/tcp") -> Answer:
    return answer(found, packet_of(found, source, destination, port, v=0, source_port=0))
