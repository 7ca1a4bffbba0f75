"""Runs in the virtual machine, whose kernel has SCTP: Services of SCTP, by AntreaProxy and by kube-proxy."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
from kernel_lab import OUTSIDE, realized
from kernel_sctp import associating, bound
from kernel_services import SECONDS, Way, apply, kube_proxy, service
from kernel_traffic import TIMEOUT
from vm_shape import TWO

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from kernel_lab import KernelLab
    from kernel_node import KernelNode

pytestmark = pytest.mark.wide
NODE, CLIENT = "node-1", "client"
SERVICES = {"sctp-near": ("web", 30701), "sctp-far": ("server", 30702)}
"""The Endpoint, on the client's Node and on another, and the NodePort."""
PORT, LISTENING = 7100, 7101
ZONES = {4: 65520, 6: 65510}
"""Where the switch tracks connections, by IP version."""


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelLab]:
    with realized(TWO) as lab:
        yield lab


@pytest.fixture(scope="module")
def cluster_ips(kernel: KernelLab) -> Iterator[dict[str, list[str]]]:
    """By Service, of both families; Endpoints answer."""
    found = {}
    with ExitStack() as stack:
        for name, (pod, node_port) in SERVICES.items():
            port = {"name": "line", "port": PORT, "targetPort": LISTENING, "protocol": "SCTP"}
            ports = [port | {"nodePort": node_port}]
            made = apply(*service(name, ports, kernel.addresses(pod), type="NodePort"))
            found[name] = made[0]["spec"]["clusterIPs"]
            for address in kernel.addresses(pod).values():
                stack.enter_context(associating(kernel.netns(pod), address, LISTENING, partial(naming, pod)))
        yield found


def naming(name: str, stream: socket.socket) -> None:
    """Whoever associates gets the name, and what was sent."""
    with suppress(OSError):  # of one that gave up
        stream.sendall(name.encode() + b" " + stream.recv(64))


@contextmanager
def associated(way: Way) -> Iterator[str]:
    """One association; the name of its Endpoint, empty if none comes up."""
    with bound(way.netns, way.source) as stream:
        try:
            stream.settimeout(2 * SECONDS)
            stream.connect((way.address, way.port))
            stream.sendall(b"line")
            name, _, word = stream.recv(64).decode().partition(" ")
        except OSError:
            name = word = ""
        yield name if word == "line" else ""


def ways(kernel: KernelLab, node: KernelNode, ips: list[str], node_port: int) -> Iterator[Way]:
    """Of a Pod, of the Node itself and of a host outside."""
    for ip in ips:
        version = ip_address(ip).version
        yield Way(kernel.netns(CLIENT), ip, PORT, kernel.addresses(CLIENT)[version])
        (route,) = json.loads(node.run("ip", "-json", "route", "get", ip))
        yield Way(kernel.netns(NODE), ip, PORT, route["prefsrc"])
        there = kernel.addresses(NODE)[version]
        yield Way(kernel.netns(OUTSIDE), there, node_port, kernel.addresses(OUTSIDE)[version])


def restart(node: KernelNode, cluster_ips: dict[str, list[str]], **proxy: bool) -> None:
    """Start the agent anew, with these keys of antreaProxy, and wait until they are in effect."""
    node.restart_agent(antreaProxy=proxy)
    wanted = "proxyAll" in proxy

    def is_in_effect() -> bool:
        routes = node.run("ip", "-4", "route") + node.run("ip", "-6", "route")
        return all((f"{ip} via" in routes) == wanted for ips in cluster_ips.values() for ip in ips)

    node.wait_for(f"routes to Services: {wanted}", is_in_effect)


def all_answered(kernel: KernelLab, cluster_ips: dict[str, list[str]]) -> None:
    node = kernel.nodes[NODE]
    for name, (pod, node_port) in SERVICES.items():
        for way in ways(kernel, node, cluster_ips[name], node_port):
            node.wait_for(f"{pod} by {way}", partial(answered_by, way, pod), seconds=3 * TIMEOUT)


def answered_by(way: Way, pod: str) -> bool:
    with associated(way) as name:
        return name == pod


def test_sctp_services_by_antrea_proxy_and_by_kube_proxy(
    kernel: KernelLab, cluster_ips: dict[str, list[str]]
) -> None:
    """By one after the other; with neither of them nobody is answered."""
    node = kernel.nodes[NODE]
    restart(node, cluster_ips, proxyAll=True)
    all_answered(kernel, cluster_ips)
    of_pod = [
        Way(kernel.netns(CLIENT), ip, PORT, kernel.addresses(CLIENT)[ip_address(ip).version])
        for ips in cluster_ips.values()
        for ip in ips
    ]
    for way in of_pod:
        with associated(way) as name:  # as long as it is tracked
            assert name
            zone = ZONES[ip_address(way.address).version]
            tracked = node.run("ovs-appctl", "dpctl/dump-conntrack", f"zone={zone}")
            assert f"dst={way.address},sport=" in tracked

    restart(node, cluster_ips, enable=False)
    pod, node_port = SERVICES["sctp-far"]
    for way in ways(kernel, node, cluster_ips["sctp-far"][:1], node_port):
        assert not answered_by(way, pod), way
    for mode in ("nftables", "iptables"):
        with kube_proxy(node, mode):
            all_answered(kernel, cluster_ips)
        node.run("sh", "-c", "nft delete table ip kube-proxy; nft delete table ip6 kube-proxy; true")
