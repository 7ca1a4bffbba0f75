"""Runs in the virtual machine, whose kernel has IPVS: a Node's Services go from kube-proxy in mode ipvs to the switch, and back.

Connections of the Node and of a host outside go on both ways, and new ones are answered at each step, in both families.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from kernel_lab import OUTSIDE, realized, say
from kernel_services import MODULES, Way, apply, kube_proxy, service
from kernel_talk import Line, Talk, broken, conversing, talks, until_greeted
from kernel_traffic import TIMEOUT
from vm_shape import TWO

from antrea.outside.netlink import held_address, kept_route
from antrea.outside.netlink.ipvs import VirtualServer, parse
from lab.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernel_lab import KernelLab
    from kernel_node import KernelNode

pytestmark = pytest.mark.wide
NODE, POD = "node-1", "server"
"""The Endpoint is on another Node."""
WEB, ASSOCIATION = 9101, 9102
"""Where it listens: TCP, SCTP."""
EXTERNAL = {4: "203.0.113.19", 6: "2001:db8:113::19"}
ZONES = {4: 65520, 6: 65510}
"""Where the switch tracks connections, by IP version."""
SCHEDULERS = ("rr", "lc", "sh")
SCHEDULED = re.compile(r"^(?:TCP|UDP|SCTP) +\S+ (\w+) +(persistent)?", re.MULTILINE)
"""A virtual server's scheduler, and whether it remembers clients, in /proc/net/ip_vs."""


class Port(NamedTuple):
    """Of a Service."""

    number: int
    node_port: int
    target: int
    protocol: str

    @property
    def spec(self) -> dict[str, Any]:
        ends = {"port": self.number, "nodePort": self.node_port, "targetPort": self.target}
        return {"name": self.protocol.lower(), "protocol": self.protocol, **ends}


PLAIN = (Port(80, 30180, WEB, "TCP"), Port(81, 30181, ASSOCIATION, "SCTP"))
STICKY = (Port(80, 30182, WEB, "TCP"),)


class Given(NamedTuple):
    """ClusterIPs of all Services, and lines to them that end on the Node: its own, and those of a host outside."""

    cluster_ips: list[str]
    lines: list[Line]

    @property
    def servers(self) -> set[VirtualServer]:
        return {VirtualServer("SCTP" if sctp else "TCP", way.address, way.port) for way, sctp in self.lines}


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelLab]:
    with realized(TWO) as lab:
        yield lab


@pytest.fixture(scope="module")
def given(kernel: KernelLab) -> Iterator[Given]:
    """One Service with external IPs, and one with `sessionAffinity`; the Endpoint answers."""
    run(["modprobe", "-a", *MODULES, *(f"ip_vs_{name}" for name in SCHEDULERS)])
    here = kernel.addresses(NODE)
    for version, address in EXTERNAL.items():
        run(["ip", f"-{version}", "route", "replace", address, "via", here[version]])
    kinds: dict[str, tuple[tuple[Port, ...], dict[str, Any]]] = {
        "plain": (PLAIN, {"externalIPs": list(EXTERNAL.values())}),
        "sticky": (STICKY, {"sessionAffinity": "ClientIP"}),
    }
    found = Given([], [])
    for name, (ports, more) in kinds.items():
        listed = [port.spec for port in ports]
        made = apply(*service(name, listed, kernel.addresses(POD), type="NodePort", **more))
        found.cluster_ips.extend(made[0]["spec"]["clusterIPs"])
        for port in ports:
            addresses = made[0]["spec"]["clusterIPs"], made[0]["spec"].get("externalIPs", [])
            found.lines.extend(lines(kernel, port, *addresses))
    with conversing(kernel, POD, WEB, ASSOCIATION):
        yield found


def lines(kernel: KernelLab, port: Port, cluster_ips: list[str], external_ips: list[str]) -> Iterator[Line]:
    own, outside = kernel.netns(NODE), kernel.netns(OUTSIDE)
    ways = [Way(own, ip, port.number) for ip in cluster_ips]
    ways += [Way(who, ip, port.number) for ip in external_ips for who in (own, outside)]
    ways += [Way(who, ip, port.node_port) for ip in kernel.addresses(NODE).values() for who in (own, outside)]
    return (Line(way, port.protocol == "SCTP") for way in ways)


def test_services_and_connections_go_from_kube_proxy_in_mode_ipvs_to_the_switch_and_back(
    kernel: KernelLab, given: Given
) -> None:
    """Connections through each scheduler; nothing of kube-proxy is left between."""
    node = kernel.nodes[NODE]
    to_the_switch(node, given)
    and_back(node, given)


def to_the_switch(node: KernelNode, given: Given) -> None:
    by_ipvs: list[Talk] = []
    with ExitStack() as stack:
        for scheduler in ("rr", "lc"):
            with balancing(node, given, scheduler):
                by_ipvs += stack.enter_context(talks(given.lines))
        with balancing(node, given, "sh"):
            by_ipvs += stack.enter_context(talks(given.lines))
            found = antctl(node)
            assert (found["runs"], found["ipvs"]) == (True, True)
            assert min(found[key] for key in ("virtualServers", "ipvsAddresses", "ipSets", "chains")) > 0
            turn(node, given, proxy_all=True)
            assert broken(by_ipvs, b"beside proxyAll") == []
            until_greeted(given.lines)
            by_ipvs += stack.enter_context(talks(given.lines))
        found = antctl(node, "--clean")
        left = ("runs", "ipvs", "virtualServers", "ipvsAddresses", "ipSets", "chains", "tables")
        assert not any(found[key] for key in left), found
        assert broken(by_ipvs, b"by connection tracking") == []
        assert found["heldAddresses"] == len(given.cluster_ips) + len(EXTERNAL)
        until_greeted(given.lines)
        by_switch = stack.enter_context(talks(given.lines))
        for version, zone in ZONES.items():
            tracked = node.run("ovs-appctl", "dpctl/dump-conntrack", f"zone={zone}")
            for ip in (*given.cluster_ips, EXTERNAL[version]):
                assert ip_address(ip).version != version or f"dst={ip},sport=" in tracked
        assert broken([*by_ipvs, *by_switch], b"beside new ones") == []
    node.wait_for("no held address", lambda: held_address.TABLE not in node.run("nft", "list", "tables"))
    assert held_address.DEVICE not in node.run("ip", "link")


def and_back(node: KernelNode, given: Given) -> None:
    with talks(given.lines) as by_switch:
        assert antctl(node, "--keep")["keptRoutes"] >= len(given.cluster_ips) + len(EXTERNAL)
        with balancing(node, given, "lc"):
            assert broken(by_switch, b"beside kube-proxy") == []
            with talks(given.lines) as beside:
                turn(node, given, proxy_all=False)
                assert broken([*by_switch, *beside], b"without proxyAll") == []
                until_greeted(given.lines)
                assert broken([*by_switch, *beside], b"beside new ones") == []
            for one in by_switch:
                one.close()
            node.wait_for("no kept route", lambda: kept_route.TABLE not in node.run("nft", "list", "tables"))
            assert not node.run("ip", "route", "show", "table", str(kept_route.ROUTES))
            until_greeted(given.lines)


@contextmanager
def balancing(node: KernelNode, given: Given, scheduler: str) -> Iterator[None]:
    """kube-proxy, once IPVS has all virtual servers by this scheduler, and whoever asks anew is answered."""

    def balanced() -> bool:
        table = node.run("cat", "/proc/net/ip_vs")
        kinds = {(scheduler, ""), (scheduler, "persistent")}
        return {*SCHEDULED.findall(table)} == kinds and {*parse(table)} >= given.servers

    with kube_proxy(node, ipvs={"scheduler": scheduler}):
        node.wait_for(f"virtual servers of {scheduler}", balanced)
        until_greeted(given.lines)
        say(f"virtual servers of {scheduler}")
        yield


def turn(node: KernelNode, given: Given, *, proxy_all: bool) -> None:
    """Start the agent with this in its configuration, and wait until it is in effect: routes may stay for connections."""
    node.restart_agent(antreaProxy={"proxyAll": proxy_all})

    def is_in_effect() -> bool:
        serves = "set node-port-ip" in node.run("nft", "list", "table", "inet", "antrea")
        routes = node.run("ip", "-4", "route") + node.run("ip", "-6", "route")
        return serves == proxy_all and (
            not proxy_all or all(f"{ip} via" in routes for ip in given.cluster_ips)
        )

    node.wait_for(f"proxyAll: {proxy_all}", is_in_effect)
    say(f"proxyAll: {proxy_all}")


def antctl(node: KernelNode, *act: str) -> dict[str, Any]:
    """What `antctl kube-proxy node` prints in the agent's container."""
    program = (sys.executable, "-P", "-m", "antrea.antctl.main", "kube-proxy", "node")
    found: dict[str, Any] = json.loads(node.run("env", *node.pod_env, *program, *act, seconds=5 * TIMEOUT))
    say(f"antctl kube-proxy node {' '.join(act)}")
    return found
