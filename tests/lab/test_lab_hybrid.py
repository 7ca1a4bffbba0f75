"""Mode hybrid: packets to a Node on the same network are routed, those to a Node behind a router go through a tunnel."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import workstation
from agent_node import antctl, in_agent, pod_namespace
from outside_host import source_of
from own_lab import own_lab
from quiet_pod import SERVING, quiet_pods
from test_lab_no_encap import CLOSED, captured, fetch, gets, seen
from test_lab_reachability import unreachable
from test_lab_traceflow import ways

from lab import namespace, node
from lab.process import wait_for
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from test_lab_no_encap import Addresses

    from lab.cluster import Lab

PLACES = {"near": "node-1", "side": "node-2", "far": "node-3"}
"""Pods by Node: node-2 is on the network of node-1, node-3 behind a router."""
TUNNEL = "udp port 6081"
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: POD}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  selector: {routed: POD}
  ports: [{port: 80, targetPort: 8080}]
"""
EGRESS = """
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: hybrid}
spec:
  ipRanges: [{start: 172.30.0.201, end: 172.30.0.202}]
  nodeSelector: {matchLabels: {kubernetes.io/hostname: node-2}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: hybrid}
spec: {appliedTo: {podSelector: {matchExpressions: [{key: routed, operator: In, values: [near, far]}]}}, externalIPPool: hybrid}
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    settings = Settings(
        nodes=3,
        family="dual",
        apart=1,
        kube_proxy="none",
        proxy_all=True,
        agent={"trafficEncapMode": "hybrid"},
    )
    with own_lab("hybrid", settings) as found:
        yield found


@pytest.fixture(scope="module")
def pods(lab: Lab) -> Iterator[Addresses]:
    with quiet_pods(lab, PLACES, SERVING):
        found: Addresses = {}
        for name in PLACES:
            lab.api.kubectl("label", "pod", name, f"routed={name}")
            shown = json.loads(lab.api.kubectl("get", "pod", name, "-o", "json"))["status"]["podIPs"]
            found[name] = {6 if ":" in one["ip"] else 4: one["ip"] for one in shown}
        yield found


def ping(lab: Lab, pods: Addresses, target: str, size: int) -> bool:
    """Whether an IP packet of `size` bytes that may not be fragmented gets from `near` to the address and back."""
    payload = size - (48 if ":" in target else 28)
    inside = pod_namespace(lab, "node-1", pods["near"][4])
    words = [*inside, "ping", "-c", "1", "-W", "5", "-M", "do", "-s", str(payload), target]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def card(lab: Lab, where: str) -> tuple[list[str], str]:
    """Words that bring a command to a Node, and the card by which other Nodes are reached."""
    return namespace.inside(namespace.path(lab.record, where), []), "eth1"


def test_packets_to_a_neighbour_are_routed_and_others_are_in_a_tunnel(
    lab: Lab, pods: Addresses, tmp_path: Path
) -> None:
    with captured(*card(lab, "node-1"), file := tmp_path / "wire.pcap"):
        for name in ("side", "far"):
            for ip in pods[name].values():
                wait_for(f"the way to {ip}", partial(gets, lab, pods, ip, 8080, name), seconds=60)
                assert fetch(lab, pods, ip, path="clientip") == pods["near"][6 if ":" in ip else 4]
                assert ping(lab, pods, ip, 1450)
        last = f"src host {pods['side'][6]} and icmp6"
        wait_for("the last answer on the wire", partial(seen, file, last), seconds=30)
    for version in (4, 6):
        near, side, far = (pods[name][version] for name in ("near", "side", "far"))
        for source, target in ((near, side), (side, near)):
            assert seen(file, f"src host {source} and dst host {target} and tcp")
        assert seen(file, f"host {far}") == []
    assert seen(file, f"{TUNNEL} and host 172.31.0.12") == []
    for way in ("src", "dst"):
        assert seen(file, f"{TUNNEL} and {way} host 172.31.1.13 and greater 1500")
    routes = node.execute(lab.record, "node-1", "ip", "route", "show", "proto", "0x40")
    cidr = {n["metadata"]["name"]: n["spec"]["podCIDR"] for n in lab.api.items("/api/v1/nodes")}
    gateway = cidr["node-3"].removesuffix("0/24") + "1"
    lines = [" ".join(line.split()) for line in routes.splitlines()]
    assert f"{cidr['node-2']} via 172.31.0.12 dev br-phy" in lines, lines
    assert f"{cidr['node-3']} via {gateway} dev antrea-gw0 onlink" in lines, lines


@pytest.mark.parametrize("where", ["side", "far"])
def test_a_policy_holds_on_either_path(lab: Lab, pods: Addresses, where: str) -> None:
    for end, way in ((where, "Ingress"), ("near", "Egress")):
        lab.api.apply(CLOSED.replace("WHERE", end).replace("TYPE", way))
        try:
            for ip in pods[where].values():
                wait_for(f"no way to {ip}", partial(gets, lab, pods, ip, 8080, "curl: (28)"), seconds=60)
        finally:
            lab.api.kubectl("delete", "networkpolicy", "routed")
        for ip in pods[where].values():
            wait_for(f"the way to {ip}", partial(gets, lab, pods, ip, 8080, where), seconds=60)


def tunnel_flows(lab: Lab) -> list[str]:
    """Flows of node-2 by which replies to Pods of neighbors enter the tunnel."""
    shown = in_agent(
        lab, "node-2", "ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "br-int", "--names", "--no-stats"
    )
    return [
        line.strip() for line in shown.splitlines() if "priority=201" in line and "ct_mark=0x1/0xf" in line
    ]


def leaves_with(lab: Lab, pod: str, ip: str) -> bool:
    """Whether a Pod leaves the cluster with this address."""
    return source_of(lab, pod, 4) == ip


def test_packets_of_an_egress_use_the_tunnel_both_ways(lab: Lab, pods: Addresses, tmp_path: Path) -> None:
    own = lab.topology.machine("node-1").address("eth0", 4)
    assert source_of(lab, "near", 4) == own
    lab.api.apply(EGRESS)
    try:
        egress = ("get", "egress", "hybrid", "-o", "jsonpath={.status.egressIP} {.status.egressNode}")
        wait_for("the address", lambda: lab.api.kubectl(*egress) == "172.30.0.201 node-2", seconds=60)
        for name in ("near", "far"):
            wait_for(
                f"{name} with the Egress IP", partial(leaves_with, lab, name, "172.30.0.201"), seconds=60
            )
        with captured(*card(lab, "node-1"), file := tmp_path / "wire.pcap"):
            assert source_of(lab, "near", 4) == "172.30.0.201"
            ends = ("172.31.0.11", "172.31.0.12")
            for source, target in (ends, ends[::-1]):
                tunnel = f"{TUNNEL} and src host {source} and dst host {target}"
                wait_for(f"{tunnel} on the wire", partial(seen, file, tunnel), seconds=30)
        assert seen(file, f"host {pods['near'][4]}") == []
        flows = tunnel_flows(lab)
        assert any("reg0=0x2/0xf" in line and "nw_dst=" in line for line in flows), flows
        rules = node.execute(lab.record, "node-2", "ip", "rule")
        assert "fwmark 0x40000000/0x40000000 lookup 141" in rules, rules
    finally:
        lab.api.kubectl("delete", "egress/hybrid", "externalippool/hybrid")
    wait_for("the Node's address again", partial(leaves_with, lab, "near", own), seconds=60)


@pytest.mark.wide
def test_services_work_on_either_path(lab: Lab, pods: Addresses) -> None:
    for name in ("side", "far"):
        lab.api.apply(SERVICE.replace("POD", name))
        try:
            spec = json.loads(lab.api.kubectl("get", "service", name, "-o", "json"))["spec"]
            for ip in spec["clusterIPs"]:
                wait_for(f"Service {ip}", partial(gets, lab, pods, ip, 80, name), seconds=60)
            port = spec["ports"][0]["nodePort"]
            for version in (4, 6):
                address = lab.topology.machine("node-1").address("eth0", version)
                place = f"[{address}]" if version == 6 else address
                words = ["curl", "-sS", "-g", "--max-time", "3", f"http://{place}:{port}/hostname"]
                for asking in ("outside", "node-1"):
                    inside = namespace.inside(namespace.path(lab.record, asking), words)

                    def answers(inside: list[Any] = inside, name: str = name) -> bool:
                        return (
                            name in subprocess.run(inside, capture_output=True, text=True, check=False).stdout
                        )

                    wait_for(f"NodePort of {name} for {asking} at {place}", answers, seconds=60)
        finally:
            lab.api.kubectl("delete", "service", name)


@pytest.mark.wide
def test_what_is_said_of_each_path_is_true(lab: Lab, pods: Addresses) -> None:
    info = json.loads(antctl(lab, "node-1", "get", "agentinfo", "-o", "json"))
    assert info["networkInfo"]["podMTU"] == 1450
    for where, path, end in (
        ("side", "route without a tunnel from Node node-1 to Node node-2", []),
        ("far", "geneve tunnel from Node node-1 to Node node-3", ["172.31.1.13"]),
    ):
        ends = ("--from", "default/near", "--to", f"default/{where}", "--port", "8080/tcp")
        assert f"Path: {path}." in workstation.run(lab, "explain", *ends).stdout
        words = ("traceflow", "-S", "near", "-D", pods[where][4], "-o", "json")
        found = json.loads(workstation.run(lab, *words).stdout)
        assert found["phase"] == "Succeeded", found
        assert ways(found) == {
            "node-1": [("SpoofGuard", "Forwarded"), ("Forwarding", "Forwarded")],
            PLACES[where]: [("Forwarding", "Received"), ("Forwarding", "Delivered")],
        }
        each = [one for result in found["results"] for one in result["observations"]]
        assert [one["tunnelDstIP"] for one in each if "tunnelDstIP" in one] == end
        assert found["explain"]["path"] == path
    assert unreachable(lab) == ""
    for where in PLACES.values():
        doctor = in_agent(lab, where, "sh", "-c", "antctl doctor || true")
        assert not [text for text in ("cannot be reached", "packets of", "leave by") if text in doctor], (
            doctor
        )
