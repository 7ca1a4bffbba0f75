"""Runs in the virtual machine, whose kernel has IPVS: a Node's Services go from kube-proxy in mode ipvs to the switch, and back."""

from __future__ import annotations

import json
import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from kernel_lab import OUTSIDE
from kernel_services import MODULES, Way, apply, greeting, kube_proxy, service, serving, until_answered
from kernel_traffic import PATIENCE

from antrea.lab.process import run
from antrea.outside.netlink.ipvs import parse

if TYPE_CHECKING:
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


def test_services_go_from_kube_proxy_in_mode_ipvs_to_the_switch_and_back(kernel: KernelLab) -> None:
    """As processes of the Node and a host outside ask for them, in both families; nothing of kube-proxy is left between."""
    run(["modprobe", "-a", *MODULES])
    node = kernel.nodes[NODE]
    web = {"name": "web", "port": 80, "targetPort": WEB, "nodePort": NODE_PORT, "protocol": "TCP"}
    made = apply(node, *service("take-over", [web], kernel.addresses(POD), type="NodePort"))
    cluster_ips: dict[int, str] = {ip_address(ip).version: ip for ip in made[0]["spec"]["clusterIPs"]}
    ways = [Way(kernel.netns(NODE), ip, 80) for ip in cluster_ips.values()]
    ways += [Way(kernel.netns(OUTSIDE), ip, NODE_PORT) for ip in kernel.addresses(NODE).values()]
    with serving(kernel.netns(POD), {WEB: greeting}):
        with kube_proxy(node):
            until_answered(ways, node)
            assert _servers(node) >= {(way.address, way.port) for way in ways}
            found = _looked(node, "look")
            assert (found["runs"], found["ipvs"]) == (True, True)
            assert min(found[key] for key in ("virtualServers", "ipvsAddresses", "ipSets", "chains")) > 0
            _turn(node, cluster_ips, proxy_all=True)
        found = _looked(node, "clean")
        left = ("runs", "ipvs", "virtualServers", "ipvsAddresses", "ipSets", "chains", "tables")
        assert not any(found[key] for key in left), found
        until_answered(ways, node)
        for version, cluster_ip in cluster_ips.items():
            tracked = node.run("ovs-appctl", "dpctl/dump-conntrack", f"zone={ZONES[version]}")
            assert f"dst={cluster_ip},sport=" in tracked

        with kube_proxy(node):
            node.wait_for("virtual servers", lambda: _servers(node) >= {(w.address, w.port) for w in ways})
            _turn(node, cluster_ips, proxy_all=False)
            until_answered(ways, node)


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
