"""Runs in the virtual machine: external IPs of Services on the kernel datapath, in a VLAN, and beside kube-proxy in mode ipvs.

Behind one of them are the three tiers of examples/three-tier, each a process of a Pod.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kernel_egress import addresses, egress_node
from kernel_lab import OUTSIDE, TRUNK
from kernel_services import (
    MODULES,
    SECONDS,
    Way,
    answered,
    apply,
    greeting,
    kube_proxy,
    kubectl,
    service,
    serving,
)
from vm_shape import GATEWAYS, VLAN

from lab import namespace
from lab.process import run, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernel_lab import KernelLab
    from kernel_node import KernelNode

pytestmark = pytest.mark.wide
ARP_ANSWERS = Path(__file__).parents[1] / "lab/arp_answers.py"
DEVICE = f"antrea-ext.{VLAN}"
IN_VLAN = {4: "172.18.181.60", 6: "fd00:172:18:181::60"}
FLAT = {4: "172.30.0.245", 6: "fd00:172:30::245"}
POLL = {4: "172.30.0.246", 6: "fd00:172:30::246"}
TIERS = {"db": "server", "app": "client", "ui": "web"}
"""Pods of the three tiers, on both Nodes."""
PROGRAM = Path(__file__).parents[2] / "examples/three-tier/poll.py"
PORT, TIER_PORT = 9111, 8080
TIMEOUT = 300.0


def pool(name: str, ips: Sequence[str], subnet: dict[str, Any] | None = None) -> dict[str, Any]:
    """Of the Node that has Egress IPs."""
    ranges = [{"start": ip, "end": ip} for ip in ips]
    spec = {"ipRanges": ranges, "nodeSelector": {"matchLabels": {"egress": "gateway"}}}
    if subnet:
        spec["subnetInfo"] = subnet
    return {
        "apiVersion": "crd.antrea.io/v1beta1",
        "kind": "ExternalIPPool",
        "metadata": {"name": name},
        "spec": spec,
    }


@contextmanager
def balanced(
    kernel: KernelLab, node: KernelNode, name: str, pools: list[dict[str, Any]], **spec: Any
) -> Iterator[None]:
    """A Service with an address of each family, whose Endpoint is Pod `web` of node-1."""
    ports = [{"name": "web", "port": 80, "targetPort": PORT, "protocol": "TCP"}]
    objects = service(name, ports, kernel.addresses("web"), type="LoadBalancer", **spec)
    named = ",".join(one["metadata"]["name"] for one in pools)
    objects[0]["metadata"]["annotations"] = {"service.antrea.io/external-ip-pool": named}
    made = apply(*pools, *objects)
    try:
        with serving(kernel.netns("web"), {PORT: greeting}):
            yield
    finally:
        for one in reversed(made):
            kubectl("delete", one["kind"], one["metadata"]["name"], "--wait=false")


def given(node: KernelNode, name: str) -> set[str]:
    """The addresses in the status of a Service."""
    found = json.loads(kubectl("get", "service", name, "-o", "json"))
    return {one["ip"] for one in found["status"]["loadBalancer"].get("ingress", ())}


def mac_of(node: KernelNode, device: str) -> str:
    return str(json.loads(node.run("ip", "-j", "link", "show", device))[0]["address"])


def found_at(ip: str, device: str) -> set[str]:
    """MAC addresses that the machine has for it, whose neighbours the Nodes are."""
    rows = json.loads(run(["ip", "-j", "neigh", "show", "to", ip, "dev", device]))
    return {row["lladdr"] for row in rows if "lladdr" in row}


def came_in_vlan() -> int:
    """Packets that the machine got with the tag."""
    return int(Path(f"/sys/class/net/{TRUNK}/statistics/rx_packets").read_text())


@contextmanager
def served(node: KernelNode, way: str) -> Iterator[None]:
    """By AntreaProxy alone, or kube-proxy in this mode."""
    if way == "proxyAll":
        node.kill_agent()
        node.start_agent(antreaProxy={"proxyAll": True})
        try:
            yield
        finally:
            node.kill_agent()
            node.start_agent()
    else:
        with kube_proxy(node, way):
            yield


@pytest.mark.parametrize("way", ["proxyAll", "iptables", "nftables"])
def test_hosts_in_a_vlan_and_behind_its_router_reach_a_service_by_it(kernel: KernelLab, way: str) -> None:
    node = egress_node(kernel)
    pools = [
        pool(
            f"service-vlan{version}",
            [ip],
            {"gateway": GATEWAYS[version], "prefixLength": {4: 24, 6: 64}[version], "vlan": VLAN},
        )
        for version, ip in IN_VLAN.items()
    ]
    with served(node, way), balanced(kernel, node, "in-vlan", pools):
        node.wait_for("addresses", lambda: given(node, "in-vlan") == set(IN_VLAN.values()))
        # the machine is the router of the VLAN, and a host in it
        here = Path("/proc/self/ns/net")
        for version, ip in IN_VLAN.items():
            ways = [Way(here, ip, 80, GATEWAYS[version]), Way(kernel.netns(OUTSIDE), ip, 80)]
            for one in ways:
                node.wait_for(f"an answer to {one}", partial(answered, one), seconds=TIMEOUT)
            before = came_in_vlan()
            assert all(map(answered, ways))
            # the SYN, the greeting and the end of each, which comes when the client has closed
            enough = before + 3 * len(ways)
            node.wait_for("the packets in the VLAN", lambda enough=enough: came_in_vlan() >= enough)  # type: ignore[misc]
            assert found_at(ip, TRUNK) == {mac_of(node, DEVICE)}
            assert ip not in {held for _, held, _ in addresses(node)}
    node.wait_for(
        "no device in the VLAN for Services", lambda: "arp-source" not in node.run("nft", "list", "ruleset")
    )


def arp_answers(ip: str) -> set[str]:
    """MAC addresses of all that answer for an address on the Nodes' network."""
    return set(json.loads(run([sys.executable, str(ARP_ANSWERS), ip], seconds=TIMEOUT)))


def is_reported(node: KernelNode, ip: str) -> bool:
    """Whether the Node's condition on strictARP names the address; "": whether there is none."""
    found = json.loads(kubectl("get", "antreaagentinfo", node.name, "-o", "json"))
    conditions = {one["type"]: one for one in found.get("agentConditions", ())}
    told = conditions.get("StrictARPMissing", {})
    if told.get("status") != "True":
        return not ip
    return bool(ip) and ip in f"{told.get('reason')} {told.get('message')}"


def strict_arp_events(node: KernelNode) -> set[str]:
    """Nodes that have one."""
    words = ("get", "events", "-A", "--field-selector=reason=StrictARPMissing", "-o", "json")
    return {one["involvedObject"]["name"] for one in json.loads(kubectl(*words))["items"]}


def doctor(node: KernelNode) -> str:
    """What it finds about ARP in the agent's container of this Node."""
    script = '"$0" -m antrea.antctl.main doctor -o json || true'  # findings are its exit status
    found = json.loads(node.run("env", *node.pod_env, "sh", "-c", script, sys.executable, seconds=TIMEOUT))
    return "".join(row["finding"] for row in found or () if row["check"] == "strict-arp")


def test_without_strict_arp_every_node_answers_and_says_so_and_with_it_one_does(kernel: KernelLab) -> None:
    run(["modprobe", "-a", *MODULES])
    node = egress_node(kernel)
    both = [kernel.nodes[name] for name in ("node-1", "node-2")]
    macs = {one.name: mac_of(one, "eth0") for one in both}
    pools = [pool("service-flat", list(FLAT.values()))]
    with balanced(kernel, node, "flat", pools):
        node.wait_for("addresses", lambda: given(node, "flat") == set(FLAT.values()))
        with ExitStack() as stack:
            for one in both:
                stack.enter_context(kube_proxy(one))
            for one in both:
                one.wait_for("the address on kube-ipvs0", partial(is_held_by_ipvs, one, FLAT[4]))
            assert arp_answers(FLAT[4]) == set(macs.values())
            node.wait_for("Events", lambda: strict_arp_events(node) >= set(macs))
            for one in both:
                one.wait_for("the condition", partial(is_reported, one, FLAT[4]))
            assert FLAT[4] in doctor(node)
        with ExitStack() as stack:
            for one in both:
                stack.enter_context(kube_proxy(one, ipvs={"strictARP": True}))
            wait_for("one answer", lambda: arp_answers(FLAT[4]) == {macs[node.name]}, seconds=TIMEOUT)
            for one in both:
                one.wait_for("no condition", partial(is_reported, one, ""))
            assert doctor(node) == ""
            for ip in FLAT.values():
                for netns in (Path("/proc/self/ns/net"), kernel.netns(OUTSIDE)):
                    way = Way(netns, ip, 80)
                    node.wait_for(f"an answer to {way}", partial(answered, way), seconds=TIMEOUT)
                assert found_at(ip, "nodes") == {macs[node.name]}
            clients_vote(kernel, node)


@contextmanager
def poll(kernel: KernelLab, node: KernelNode) -> Iterator[None]:
    """The page has addresses of a pool, and each tier calls the next one by its Service."""
    ports = [{"name": "http", "port": 80, "targetPort": TIER_PORT, "protocol": "TCP"}]
    hosts: list[str] = []
    running: list[subprocess.Popen[bytes]] = []
    made = apply(pool("service-poll4", [POLL[4]]), pool("service-poll6", [POLL[6]]))
    try:
        for tier, pod in TIERS.items():
            more = {"type": "LoadBalancer"} if tier == "ui" else {}
            objects = service(f"poll-{tier}", ports, kernel.addresses(pod), **more)
            if more:
                objects[0]["metadata"]["annotations"] = {
                    "service.antrea.io/external-ip-pool": "service-poll4,service-poll6"
                }
            made += (found := apply(*objects))
            words = kernel.pods[pod].words("env", *hosts, sys.executable, PROGRAM, tier)
            running.append(subprocess.Popen(words))
            hosts.append(f"POLL_{tier.upper()}_SERVICE_HOST={found[0]['spec']['clusterIP']}")
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
        for one in reversed(made):
            kubectl("delete", one["kind"], one["metadata"]["name"], "--wait=false")


def fetched(netns: Path, ip: str, path: str, method: str = "GET") -> str:
    """What the page answers; empty: nothing, or no success."""
    try:
        with namespace.entered(netns):
            stream = socket.create_connection((ip, 80), SECONDS)
        with stream:
            stream.settimeout(10 * SECONDS)
            asked = HTTPConnection(ip, 80)
            asked.sock = stream
            asked.request(method, path)
            answer = asked.getresponse()
            return answer.read().decode() if answer.status == 200 else ""
    except (OSError, HTTPException):
        return ""


def clients_vote(kernel: KernelLab, node: KernelNode) -> None:
    """On the subnet of the Nodes and behind their router, in both families; all votes are counted in the last tier."""
    clients = [
        (netns, ip) for netns in (Path("/proc/self/ns/net"), kernel.netns(OUTSIDE)) for ip in POLL.values()
    ]
    with poll(kernel, node):
        node.wait_for("addresses of the poll", lambda: given(node, "poll-ui") == set(POLL.values()))
        for netns, ip in clients:
            node.wait_for(f"the page at {ip}", partial(fetched, netns, ip, "/votes"), seconds=TIMEOUT)
        for netns, ip in clients:
            assert fetched(netns, ip, "/votes/red", "POST") == "counted\n"
        assert [json.loads(fetched(*client, "/votes")) for client in clients] == (
            [{"red": len(clients), "green": 0, "blue": 0}] * len(clients)
        )
        assert "served by" in fetched(*clients[0], "/")


def is_held_by_ipvs(node: KernelNode, ip: str) -> bool:
    return ip in node.run("sh", "-c", "ip -o address show dev kube-ipvs0 2>&1 || true")
