"""The Service API row by row: the same test runs where AntreaProxy serves all Services and where kube-proxy does."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from agent_node import pod_namespace
from own_lab import own_lab
from quiet_pod import quiet_pods

from antrea.lab import cluster, namespace
from antrea.lab.process import wait_for
from antrea.lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from antrea.lab.cluster import Lab

pytestmark = pytest.mark.wide

OFF = {"antreaProxy": {"enable": False}}
SIDES = {
    "antrea": Settings(nodes=2, kube_proxy="none", proxy_all=True),
    "nftables": Settings(nodes=2, kube_proxy="nftables", agent=OFF),
    "iptables": Settings(nodes=2, kube_proxy="iptables", agent=OFF),
}
PLACES = {"a": "node-1", "b": "node-2"}
PORTS = {"a": 8080, "b": 8090}
TRIES, SECONDS = 14, 2
ZONE = "topology.kubernetes.io/zone"
REFUSED, SILENT = "refused", "silent"
A, B, BOTH = frozenset("a"), frozenset("b"), frozenset("ab")


class End(NamedTuple):
    """An Endpoint, in a slice of its own."""

    pod: str
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    zone: str = ""


class Row(NamedTuple):
    """A Service and who gets which answers: (who, where) -> names of Pods, REFUSED or SILENT.

    `who` is a node, `outside`, or a Pod; `where` is cluster, external, balanced, or the node whose NodePort is asked.
    """

    name: str
    spec: dict[str, Any]
    ends: tuple[End, ...]
    answers: dict[tuple[str, str], frozenset[str] | str]
    labels: Mapping[str, str] = MappingProxyType({})
    ingress: tuple[dict[str, str], ...] = ()


ALL = (End("a"), End("b"))
NODE_PORT = {"type": "NodePort"}
LOCAL = {"externalTrafficPolicy": "Local"}
BALANCER = {"type": "LoadBalancer"}


def balanced(number: int, **more: str) -> tuple[dict[str, str], ...]:
    return ({"ip": f"198.51.100.{number}", **more},)


ROWS = (
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
    Row("unready", {}, (End("a", ready=False, serving=False),),
        {("client", "cluster"): REFUSED, ("node-1", "cluster"): REFUSED}),
    Row("external-ip", {"externalIPs": ["198.51.100.10"]}, ALL,
        {("outside", "external"): BOTH, ("node-1", "external"): BOTH, ("client", "external"): BOTH}),
    Row("balanced", BALANCER, ALL,
        {("outside", "balanced"): BOTH, ("node-1", "balanced"): BOTH, ("client", "balanced"): BOTH, ("outside", "node-2"): BOTH},
        ingress=balanced(20)),
    Row("balanced-class", BALANCER | {"loadBalancerClass": "example.com/x", "allocateLoadBalancerNodePorts": False}, ALL,
        {("outside", "balanced"): BOTH, ("client", "balanced"): BOTH}, ingress=balanced(21)),
    Row("balanced-ranges", BALANCER | {"loadBalancerSourceRanges": ["203.0.113.0/24"]}, ALL,
        {("outside", "balanced"): SILENT, ("client", "cluster"): BOTH, ("outside", "node-1"): BOTH}, ingress=balanced(22)),
    Row("balanced-proxy", BALANCER, ALL,
        {("client", "balanced"): SILENT, ("client", "cluster"): BOTH}, ingress=balanced(23, ipMode="Proxy")),
    Row("balanced-local", BALANCER | LOCAL, (End("a"),),
        {("outside", "balanced"): A, ("node-2", "balanced"): A, ("outside", "node-2"): SILENT}, ingress=balanced(24)),
    Row("another-proxy", {}, ALL, {("client", "cluster"): SILENT, ("node-1", "cluster"): SILENT},
        labels={"service.kubernetes.io/service-proxy-name": "other"}),
    Row("hairpin", {}, (End("a"),), {("a", "cluster"): A, ("client", "cluster"): A}),
    Row("zones", {}, (End("a", zone="z1"), End("b", zone="z2")),
        {("client", "cluster"): A, ("node-1", "cluster"): A, ("node-2", "cluster"): B}),
    Row("zone-missing", {}, (End("a", zone="z1"), End("b")),
        {("client", "cluster"): BOTH, ("node-2", "cluster"): BOTH}),
)  # fmt: skip


OTHERWISE = {
    "internal-local-none": {
        ("client", "cluster"): REFUSED,
        ("node-1", "cluster"): REFUSED,
        ("node-2", "cluster"): B,
    }
}
"""Answers of AntreaProxy where upstream has decided otherwise than kube-proxy: a client that gets nothing is told at once."""


class World(NamedTuple):
    """A lab with all Services of ROWS, by the name of who serves them."""

    side: str

    lab: Lab
    pods: Mapping[str, str]
    specs: Mapping[str, Mapping[str, Any]]


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
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{row.name}-{end.pod}",
            "labels": {"kubernetes.io/service-name": row.name},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": PORTS[end.pod], "protocol": "TCP"}],
        "endpoints": [found],
    }


@pytest.fixture(scope="module", params=list(SIDES))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with own_lab(f"api-{request.param[:2]}", SIDES[request.param]) as lab, servers_and_client(lab) as pods:
        for number, name in enumerate(PLACES.values(), 1):
            lab.api.kubectl("label", "node", name, f"{ZONE}=z{number}")
        first = lab.topology.machine("node-1").address("eth0", 4)
        namespace.script(
            lab.record,
            namespace.path(lab.record, "gateway"),
            [f"ip route replace 198.51.100.0/24 via {first}"],
        )
        items = [service(row) for row in ROWS]
        items += [slice_of(row, end, pods) for row in ROWS for end in row.ends]
        lab.api.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        for row in ROWS:
            if row.ingress:
                given = json.dumps({"status": {"loadBalancer": {"ingress": row.ingress}}})
                words = ("patch", "service", row.name, "--subresource=status", "--type=merge", "-p", given)
                lab.api.kubectl(*words)
        listed = json.loads(lab.api.kubectl("get", "services", "-o", "json"))["items"]
        yield World(request.param, lab, pods, {one["metadata"]["name"]: one["spec"] for one in listed})


@contextmanager
def servers_and_client(lab: Lab) -> Iterator[dict[str, str]]:
    """Two servers at different ports."""
    with (
        quiet_pods(lab, {"client": "node-1"}) as client,
        quiet_pods(lab, {"a": PLACES["a"]}, f"netexec, --http-port={PORTS['a']}") as one,
        quiet_pods(lab, {"b": PLACES["b"]}, f"netexec, --http-port={PORTS['b']}") as other,
    ):
        yield client | one | other


def place(world: World, row: Row, where: str) -> str:
    spec = world.specs[row.name]
    if where == "cluster":
        return f"{spec['clusterIP']}:80"
    if where == "external":
        return f"{spec['externalIPs'][0]}:80"
    if where == "balanced":
        return f"{row.ingress[0]['ip']}:80"
    return f"{world.lab.topology.machine(where).address('eth0', 4)}:{spec['ports'][0]['nodePort']}"


def once(world: World, who: str, target: str) -> str:
    """A Pod's name, REFUSED or SILENT."""
    words = ["curl", "-sS", "--max-time", str(SECONDS), f"http://{target}/hostname"]
    if who in world.pods:
        where = PLACES.get(who, "node-1")
        inside = [*pod_namespace(world.lab, where, world.pods[who]), *words]
    else:
        inside = cluster.enter(world.lab, who, words)
    done = subprocess.run(inside, capture_output=True, text=True, check=False)
    return done.stdout or (REFUSED if done.returncode == 7 else SILENT)


def asked(world: World, who: str, target: str, tries: int = TRIES) -> frozenset[str] | str:
    """What comes of several connections: names, or what is the same of all."""
    first = once(world, who, target)
    if first in (REFUSED, SILENT):
        return first
    with ThreadPoolExecutor(4) as pool:
        return frozenset(pool.map(lambda _: once(world, who, target), range(tries))) | {first}


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_service_is_answered_as_its_row_says(world: World, row: Row) -> None:
    found: dict[tuple[str, str], frozenset[str] | str] = {}
    wanted_of = OTHERWISE.get(row.name, row.answers) if world.side == "antrea" else row.answers

    def same() -> bool:
        for (who, where), wanted in wanted_of.items():
            if found.get((who, where)) != wanted:
                found[who, where] = asked(world, who, place(world, row, where))
        return found == wanted_of

    try:
        wait_for(f"answers of Service {row.name}", same, seconds=40)
    except Exception as why:
        why.add_note(f"{found} instead of {wanted_of}")
        raise


def test_a_client_stays_with_its_endpoint(world: World) -> None:
    row = next(row for row in ROWS if row.name == "plain")
    world.lab.api.kubectl("patch", "service", row.name, "-p", '{"spec": {"sessionAffinity": "ClientIP"}}')
    try:
        for who in ("client", "node-2"):
            target = place(world, row, "cluster")
            wait_for("one Endpoint", lambda: len(asked(world, who, target)) == 1, seconds=40)  # noqa: B023
    finally:
        world.lab.api.kubectl("patch", "service", row.name, "-p", '{"spec": {"sessionAffinity": "None"}}')


def test_a_load_balancer_is_told_which_nodes_have_endpoints(world: World) -> None:
    port = world.specs["balanced-local"]["healthCheckNodePort"]

    def told(name: str) -> tuple[str, Any]:
        url = f"http://{world.lab.topology.machine(name).address('eth0', 4)}:{port}"
        words = ["curl", "-sS", "--max-time", "3", "-w", "\n%{http_code}", url]
        done = subprocess.run(
            cluster.enter(world.lab, "outside", words), capture_output=True, text=True, check=False
        )
        body, _, code = done.stdout.rpartition("\n")
        return code, json.loads(body or "null")

    about = {"service": {"namespace": "default", "name": "balanced-local"}, "serviceProxyHealthy": True}
    for name, code, count in (("node-1", "200", 1), ("node-2", "503", 0)):
        wanted = (code, {**about, "localEndpoints": count})
        wait_for(f"the health check of {name}", lambda: told(name) == wanted, seconds=40)  # noqa: B023
