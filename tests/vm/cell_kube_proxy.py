"""Runs in the virtual machine, whose kernel has IPVS: a Node's Services go from kube-proxy in mode ipvs to the switch, and back.

Connections of the Node and of a host outside go on through the take-over.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import ExitStack, closing, contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from kernel_lab import OUTSIDE
from kernel_services import MODULES, Way, apply, kube_proxy, service, serving, until_answered
from kernel_traffic import PATIENCE

from antrea.lab import namespace
from antrea.lab.process import run
from antrea.outside.netlink.held_address import DEVICE
from antrea.outside.netlink.ipvs import parse

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

    from kernel_lab import KernelLab
    from kernel_node import KernelNode

pytestmark = pytest.mark.wide
NODE, POD = "node-1", "server"
WEB, NODE_PORT = 9101, 30180
COMMAND = """
import json, sys
from pathlib import Path
from antrea.antctl.doctor.gather import Host
from antrea.antctl.kube_proxy.node import look, remove
host = Host(Path("/proc"))
if sys.argv[1] == "clean":
    remove(host)
print(json.dumps(look(host, {}, {})))
"""
ZONES = {4: 65520, 6: 65510}
"""Where the switch tracks connections, by IP version."""
EXTERNAL = {4: "203.0.113.19", 6: "2001:db8:113::19"}


class Talk:
    """A connection that stays open."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self._stream = namespace.connect(way.netns, (way.address, way.port), seconds=PATIENCE)
        self._stream.settimeout(PATIENCE)
        assert self._stream.recv(64) == b"hello"

    def goes_on(self, word: bytes) -> bool:
        try:
            self._stream.sendall(word)
            return self._stream.recv(64) == word
        except OSError:
            return False

    def close(self) -> None:
        self._stream.close()


def conversing(stream: socket.socket) -> None:
    """As `greeting`; then whatever comes goes back, beside other connections."""
    own = stream.dup()
    own.settimeout(None)
    own.sendall(b"hello")
    threading.Thread(target=_echo, args=(own,), daemon=True).start()


def _echo(stream: socket.socket) -> None:
    with closing(stream):
        while data := stream.recv(64):
            stream.sendall(data)


@contextmanager
def talks(ways: Sequence[Way]) -> Iterator[list[Talk]]:
    made: list[Talk] = []
    try:
        made += map(Talk, ways)
        yield made
    finally:
        for one in made:
            one.close()


def broken(open_ones: Sequence[Talk], word: bytes) -> list[Way]:
    return [one.way for one in open_ones if not one.goes_on(word)]


def test_services_and_connections_go_from_kube_proxy_in_mode_ipvs_to_the_switch_and_back(
    kernel: KernelLab,
) -> None:
    """As processes of the Node and a host outside ask for them, in both families; nothing of kube-proxy is left between."""
    node = kernel.nodes[NODE]
    cluster_ips, ways = _service(kernel)
    with serving(kernel.netns(POD), {WEB: conversing}):
        with ExitStack() as stack:
            with kube_proxy(node):
                until_answered(ways, node)
                assert _servers(node) >= {(way.address, way.port) for way in ways}
                found = _looked(node, "look")
                assert (found["runs"], found["ipvs"]) == (True, True)
                assert min(found[key] for key in ("virtualServers", "ipvsAddresses", "ipSets", "chains")) > 0
                open_ones = stack.enter_context(talks(ways))
                _turn(node, cluster_ips, proxy_all=True)
                assert broken(open_ones, b"beside proxyAll") == []
            found = _looked(node, "clean")
            left = ("runs", "ipvs", "virtualServers", "ipvsAddresses", "ipSets", "chains", "tables")
            assert not any(found[key] for key in left), found
            assert broken(open_ones, b"by connection tracking") == []
            assert found["heldAddresses"] == len(cluster_ips)
            until_answered(ways, node)
            for version, cluster_ip in cluster_ips.items():
                tracked = node.run("ovs-appctl", "dpctl/dump-conntrack", f"zone={ZONES[version]}")
                assert f"dst={cluster_ip},sport=" in tracked
            assert broken(open_ones, b"beside new ones") == []
        node.wait_for("no held address", lambda: DEVICE not in node.run("ip", "link"))

        with kube_proxy(node):
            node.wait_for("virtual servers", lambda: _servers(node) >= {(w.address, w.port) for w in ways})
            _turn(node, cluster_ips, proxy_all=False)
            until_answered(ways, node)


def _service(kernel: KernelLab) -> tuple[dict[int, str], list[Way]]:
    """Make it; its ClusterIPs, and ways to it that end on the Node: its own, and those of a host outside."""
    run(["modprobe", "-a", *MODULES])
    web = {"name": "web", "port": 80, "targetPort": WEB, "nodePort": NODE_PORT, "protocol": "TCP"}
    more = {"type": "NodePort", "externalIPs": list(EXTERNAL.values())}
    made = apply(*service("take-over", [web], kernel.addresses(POD), **more))
    cluster_ips: dict[int, str] = {ip_address(ip).version: ip for ip in made[0]["spec"]["clusterIPs"]}
    own, outside, here = kernel.netns(NODE), kernel.netns(OUTSIDE), kernel.addresses(NODE)
    for version, address in EXTERNAL.items():
        run(["ip", f"-{version}", "route", "replace", address, "via", here[version]])
    ways = [Way(own, ip, 80) for ip in cluster_ips.values()]
    ways += [Way(who, ip, NODE_PORT) for ip in here.values() for who in (own, outside)]
    return cluster_ips, [*ways, *(Way(outside, ip, 80) for ip in EXTERNAL.values())]


def _servers(node: KernelNode) -> set[tuple[str, int]]:
    return {(one.ip, one.port) for one in parse(node.run("cat", "/proc/net/ip_vs"))}


def _turn(node: KernelNode, cluster_ips: dict[int, str], *, proxy_all: bool) -> None:
    """Start the agent with this in its configuration, and wait until it is in effect."""
    node.kill_agent()
    node.start_agent(antreaProxy={"proxyAll": proxy_all})

    def is_in_effect() -> bool:
        routes = node.run("ip", "-4", "route") + node.run("ip", "-6", "route")
        return all((f"{ip} via" in routes) == proxy_all for ip in cluster_ips.values())

    node.wait_for(f"routes to Services: {proxy_all}", is_in_effect)


def _looked(node: KernelNode, what: str) -> dict[str, Any]:
    """What `antctl kube-proxy node` prints."""
    found: dict[str, Any] = json.loads(node.run(sys.executable, "-c", COMMAND, what, seconds=PATIENCE * 3))
    return found
