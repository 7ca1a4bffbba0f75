"""The Service API as a table, for each family: Services, their Endpoints, and who gets which answers where."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

SIX = "-6"
REFUSED, SILENT = "refused", "silent"
UNSERVED = "refused or silent"
"""No proxy takes the packet: routers outside may answer it."""
A, B, BOTH, LATE, NODE = (frozenset(names) for names in (["a"], ["b"], ["a", "b"], ["late"], ["node-2"]))
PORTS = {"a": 8080, "b": 8090, "late": 8070, "host": 8060}
"""At which the Pods answer HTTP."""
PLACES = {"a": "node-1", "b": "node-2", "late": "node-2", "host": "node-2"}
"""`late` never becomes ready, `host` has the network of its Node."""
FAMILY: Literal["dual"] = "dual"
_HOST = Settings(nodes=2, family=FAMILY).topology().machine("outside")
OUTSIDE, OUTSIDE6 = _HOST.address("eth0", 4), _HOST.address("eth0", 6)


class End(NamedTuple):
    """An Endpoint, in a slice of its own."""

    pod: str
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    zone: str = ""


class Row(NamedTuple):
    """A Service and who gets which answers: (who, where) -> names of Pods, REFUSED or SILENT.

    `who` is a node, `outside`, or a Pod; `where` is cluster, second, unserved (a port of the ClusterIP that no Service has),
    external, balanced, or the node whose NodePort is asked.
    """

    name: str
    spec: dict[str, Any]
    ends: tuple[End, ...]
    """Without any, the controllers of Kubernetes write what the selector finds."""
    answers: dict[tuple[str, str], frozenset[str] | str]
    labels: Mapping[str, str] = MappingProxyType({})
    ingress: tuple[dict[str, str], ...] = ()
    second: str = ""
    """The only Pod with the Service's port `second`, 81."""
    ipv6: bool = False

    @property
    def protocol(self) -> str:
        """Of its ports: TCP or UDP."""
        ports = self.spec.get("ports", [{}])
        return str(ports[0].get("protocol", "TCP"))

    @property
    def plain_name(self) -> str:
        """The same in both families."""
        return self.name.removesuffix(SIX)


ALL = (End("a"), End("b"))
NODE_PORT = {"type": "NodePort"}
LOCAL = {"externalTrafficPolicy": "Local"}
BALANCER = {"type": "LoadBalancer"}
UDP = {"ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "UDP"}]}


def balanced(number: int, **more: str) -> tuple[dict[str, str], ...]:
    return ({"ip": f"198.51.100.{number}", **more},)


def selected(name: str) -> dict[str, Any]:
    """Pods with that label; each gives another number to the port `http`."""
    return {"selector": {name: "yes"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}


def spread(name: str, distribution: str) -> Row:
    """Each client gets the Pod near it, whether zones or Nodes are compared: each Node is a zone of its own."""
    near: dict[tuple[str, str], frozenset[str] | str] = {
        ("client", "cluster"): A,
        ("node-1", "cluster"): A,
        ("node-2", "cluster"): B,
    }
    return Row(name, selected("server") | {"trafficDistribution": distribution}, (), near)


ROWS4 = (
    Row("plain", {}, ALL, {("client", "cluster"): BOTH, ("node-1", "cluster"): BOTH, ("node-2", "cluster"): BOTH}),
    Row("internal-local", {"internalTrafficPolicy": "Local"}, ALL,
        {("client", "cluster"): A, ("node-1", "cluster"): A, ("node-2", "cluster"): B}),
    Row("internal-local-none", {"internalTrafficPolicy": "Local"}, (End("b"),),
        {("client", "cluster"): SILENT, ("node-1", "cluster"): SILENT, ("node-2", "cluster"): B}),
    Row("node-port", NODE_PORT, ALL,
        {(who, where): BOTH for who in ("outside", "node-1", "client") for where in ("node-1", "node-2")}),
    Row("external-local", NODE_PORT | LOCAL, (End("a"),),
        {("outside", "node-1"): A, ("outside", "node-2"): SILENT, ("node-2", "node-2"): A, ("client", "cluster"): A}),
    Row("none", NODE_PORT, (),
        {("client", "cluster"): REFUSED, ("node-1", "cluster"): REFUSED, ("outside", "node-1"): REFUSED}),
    Row("ready-first", {}, (End("a", ready=False, terminating=True), End("b")),
        {("client", "cluster"): B, ("node-1", "cluster"): B}),
    Row("terminating", {}, (End("a", ready=False, terminating=True), End("b", ready=False, serving=False, terminating=True)),
        {("client", "cluster"): A, ("node-1", "cluster"): A}),
    Row("udp-terminating", UDP, (End("a", ready=False, terminating=True), End("b", ready=False, serving=False, terminating=True)),
        {("client", "cluster"): A, ("node-1", "cluster"): A, ("node-2", "cluster"): A}),
    Row("udp-none", UDP | NODE_PORT, (),
        {("client", "cluster"): REFUSED, ("node-1", "cluster"): REFUSED, ("outside", "node-1"): REFUSED}),
    Row("asked-from-outside", {}, ALL, {("outside", "cluster"): BOTH, ("outside", "unserved"): REFUSED}),
    Row("unserved-port", {}, ALL, {("client", "unserved"): REFUSED, ("node-1", "unserved"): REFUSED}),
    Row("udp-unserved-port", UDP, ALL, {("client", "unserved"): REFUSED, ("node-1", "unserved"): REFUSED}),
    Row("unready", {}, (End("a", ready=False, serving=False),),
        {("client", "cluster"): REFUSED, ("node-1", "cluster"): REFUSED}),
    Row("external-ip", {"externalIPs": ["198.51.100.10"]}, ALL,
        {("outside", "external"): BOTH, ("node-1", "external"): BOTH, ("client", "external"): BOTH}),
    Row("balanced", BALANCER, ALL,
        {("outside", "balanced"): BOTH, ("node-1", "balanced"): BOTH, ("client", "balanced"): BOTH, ("outside", "node-2"): BOTH},
        ingress=balanced(20, ipMode="VIP")),
    Row("balanced-class", BALANCER | {"loadBalancerClass": "example.com/x", "allocateLoadBalancerNodePorts": False}, ALL,
        {("outside", "balanced"): BOTH, ("client", "balanced"): BOTH}, ingress=balanced(21)),
    Row("balanced-ranges", BALANCER | {"loadBalancerSourceRanges": ["203.0.113.0/24"]}, ALL,
        {("outside", "balanced"): SILENT, ("client", "cluster"): BOTH, ("outside", "node-1"): BOTH}, ingress=balanced(22)),
    Row("balanced-for-outside", BALANCER | {"loadBalancerSourceRanges": ["203.0.113.0/24", f"{OUTSIDE}/32"]}, ALL,
        {("outside", "balanced"): BOTH, ("client", "balanced"): SILENT}, ingress=balanced(25)),
    Row("balanced-proxy", BALANCER, ALL,
        {("client", "balanced"): SILENT, ("client", "cluster"): BOTH}, ingress=balanced(23, ipMode="Proxy")),
    Row("balanced-local", BALANCER | LOCAL, (End("a"),),
        {("outside", "balanced"): A, ("node-2", "balanced"): A, ("outside", "node-2"): SILENT}, ingress=balanced(24)),
    Row("another-proxy", {}, ALL, {("client", "cluster"): SILENT, ("node-1", "cluster"): SILENT},
        labels={"service.kubernetes.io/service-proxy-name": "other"}),
    Row("headless", {"clusterIP": "None", "externalIPs": ["198.51.100.11"]}, ALL,
        {("client", "external"): SILENT}),
    Row("external-name", {"type": "ExternalName", "externalName": "example.com", "externalIPs": ["198.51.100.12"]}, ALL,
        {("client", "external"): SILENT}),
    Row("hairpin", NODE_PORT, (End("a"),),
        {("a", "cluster"): A, ("a", "node-1"): A, ("a", "node-2"): A, ("client", "cluster"): A}),
    Row("zones", {}, (End("a", zone="z1"), End("b", zone="z2")),
        {("client", "cluster"): A, ("node-1", "cluster"): A, ("node-2", "cluster"): B}),
    Row("zone-missing", {}, (End("a", zone="z1"), End("b")),
        {("client", "cluster"): BOTH, ("node-2", "cluster"): BOTH}),
    Row("several-ports", {"ports": [{"name": "http", "port": 80}, {"name": "second", "port": 81}]}, ALL,
        {("client", "cluster"): BOTH, ("client", "second"): B, ("node-1", "cluster"): BOTH, ("node-1", "second"): B}, second="b"),
    Row("named-target", selected("server") | NODE_PORT, (),
        {("client", "cluster"): BOTH, ("node-1", "cluster"): BOTH, ("outside", "node-1"): BOTH}),
    spread("prefer-close", "PreferClose"),
    spread("prefer-same-zone", "PreferSameZone"),
    spread("prefer-same-node", "PreferSameNode"),
    Row("not-ready", selected("late"), (), {("client", "cluster"): REFUSED, ("node-1", "cluster"): REFUSED}),
    Row("published", selected("late") | {"publishNotReadyAddresses": True}, (),
        {("client", "cluster"): LATE, ("node-1", "cluster"): LATE}),
    Row("of-a-node", selected("host") | NODE_PORT, (),
        {("client", "cluster"): NODE, ("node-1", "cluster"): NODE, ("node-2", "cluster"): NODE, ("outside", "node-1"): NODE}),
)  # fmt: skip


def in_ipv6(row: Row) -> Row:
    """The same Service with addresses of IPv6 alone, behind which Endpoints have such."""

    def six(text: str) -> str:
        """An address or a network."""
        return {f"{OUTSIDE}/32": f"{OUTSIDE6}/128", "203.0.113.0/24": "2001:db8:cb::/48"}.get(
            text, text.replace("198.51.100.", "2001:db8:51::")
        )

    spec = {
        key: [six(one) for one in value] if key in ("externalIPs", "loadBalancerSourceRanges") else value
        for key, value in row.spec.items()
    }
    if spec.get("type") != "ExternalName":
        spec |= {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}
    ingress = tuple(one | {"ip": six(one["ip"])} for one in row.ingress)
    # a ClusterIP that nobody serves leaves the Node, and the lab's router has no route to it in IPv6
    left_to_others = "service.kubernetes.io/service-proxy-name" in row.labels
    answers = {asked: UNSERVED if left_to_others else wanted for asked, wanted in row.answers.items()}
    return row._replace(name=row.name + SIX, spec=spec, ingress=ingress, answers=answers, ipv6=True)


ROWS = (*ROWS4, *map(in_ipv6, ROWS4))
NOWHERE: dict[tuple[str, str], frozenset[str] | str] = {
    (who, "unserved"): UNSERVED for who in ("client", "node-1")
}
OTHERWISE: dict[str, dict[str, dict[tuple[str, str], frozenset[str] | str]]] = {
    "antrea": {"internal-local-none": {("client", "cluster"): REFUSED, ("node-1", "cluster"): REFUSED}},
    "iptables": {
        "asked-from-outside": {("outside", "unserved"): UNSERVED},
        "unserved-port": NOWHERE,
        "udp-unserved-port": NOWHERE,
    },
}
"""By side. Upstream has decided that a client of AntreaProxy that gets nothing is told at once; in mode iptables kube-proxy
has no rule for a port that no Service has."""


def service(row: Row) -> dict[str, Any]:
    port = {"name": "http", "port": 80, "targetPort": 8080}
    meta = {"name": row.name, "labels": dict(row.labels)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [port], **row.spec}}


def slice_of(row: Row, end: End, pods: Mapping[str, str]) -> dict[str, Any]:
    """With a port of the same name and another number than that of the other Pod."""
    conditions = {"ready": end.ready, "serving": end.serving, "terminating": end.terminating}
    found: dict[str, Any] = {
        "addresses": [pods[end.pod]],
        "nodeName": PLACES[end.pod],
        "conditions": conditions,
    }
    if end.zone:
        found["hints"] = {"forZones": [{"name": end.zone}]}
    names = ("http", "second") if row.second == end.pod else ("http",)
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{row.name}-{end.pod}",
            "labels": {"kubernetes.io/service-name": row.name},
        },
        "addressType": "IPv6" if row.ipv6 else "IPv4",
        "ports": [{"name": name, "port": PORTS[end.pod], "protocol": row.protocol} for name in names],
        "endpoints": [found],
    }
