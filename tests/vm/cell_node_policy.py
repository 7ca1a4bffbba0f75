"""Runs in the virtual machine, whose kernel has IPVS and queues of nftables: policies on a Node beside kube-proxy in mode ipvs."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from kernel_lab import OUTSIDE, realized
from kernel_services import (
    MODULES,
    SECONDS,
    Way,
    answered,
    apply,
    datagram,
    greeting,
    kube_proxy,
    kubectl,
    service,
    serving,
    until_answered,
)
from kernel_traffic import TIMEOUT
from vm_shape import MACHINES

from antrea.outside.netlink.ipvs import parse
from lab import dns, namespace
from lab.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernel_lab import KernelLab
    from kernel_node import KernelNode

NODE, POD, CLIENT = "node-1", "web", "client"
WEB, NODE_PORT, ON_NODE, ALSO_ON_NODE, SITE = 9101, 30180, 9102, 9103, 9104
FRIEND = {4: "192.0.2.11", 6: "2001:db8:2::11"}
"""Another address of the host outside."""
EXTERNAL = {4: "203.0.113.9", 6: "2001:db8:113::9"}
SITES = {4: "198.51.100.0/24", 6: "2001:db8:9::/64"}
"""Where names lead: the name `n7.*` to the 7th address."""
CACHE = {4: "169.254.20.10", 6: "fd00:90::10"}
"""Of a resolver on the Node itself, as NodeLocal DNSCache; its packets are not tracked."""
UNTRACKED = """
table inet local-dns {{
  set ours4 {{ type ipv4_addr; elements = {{ {CACHE[4]} }}; }}
  set ours6 {{ type ipv6_addr; elements = {{ {CACHE[6]} }}; }}
  chain out {{ type filter hook output priority raw; {rules} }}
  chain in {{ type filter hook prerouting priority raw; {rules} }}
}}
"""


def policy(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "crd.antrea.io/v1beta1",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "on-node"},
        "spec": {
            "priority": 5,
            "tier": "application",
            "appliedTo": [{"nodeSelector": {"matchLabels": {"judged": "yes"}}}],
            **spec,
        },
    }


@contextmanager
def enforced(node: KernelNode, **spec: Any) -> Iterator[None]:
    apply(policy(**spec))
    try:
        realized = ("--for=jsonpath={.status.phase}=Realized", "--timeout=240s")
        kubectl("wait", "acnp/on-node", *realized)
        yield
    finally:
        kubectl("delete", "acnp", "on-node")


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelLab]:
    """One Node, with two Pods."""
    (alone,) = (machine for machine in MACHINES if machine.name == NODE)
    with realized([msgspec.structs.replace(alone, pods=(POD, CLIENT))]) as lab:
        yield lab


@pytest.fixture(scope="module")
def node(kernel: KernelLab) -> KernelNode:
    run(["modprobe", "-a", *MODULES])
    found = kernel.nodes[NODE]
    kubectl("label", "node", NODE, "judged=yes")
    found.kill_agent()
    found.start_agent(featureGates={"NodeNetworkPolicy": True})
    return found


@pytest.fixture(scope="module")
def services(kernel: KernelLab, node: KernelNode) -> Iterator[dict[str, dict[int, str]]]:
    """Cluster IPs by name and IP version; the Endpoint of `web` is a Pod, and that of `names` is DNS outside."""
    web = {"name": "web", "port": 80, "targetPort": WEB, "nodePort": NODE_PORT, "protocol": "TCP"}
    ports = [{"name": p.lower(), "port": 53, "targetPort": 53, "protocol": p} for p in ("UDP", "TCP")]
    more = {"type": "NodePort", "externalIPs": list(EXTERNAL.values())}
    objects = service("web", [web], kernel.addresses(POD), **more)
    made = apply(*objects, *service("names", ports, kernel.addresses(OUTSIDE)))
    for version, address in EXTERNAL.items():
        run(["ip", f"-{version}", "route", "add", address, "via", kernel.addresses(NODE)[version]])
    with serving(kernel.netns(POD), {WEB: greeting}), kube_proxy(node):
        yield {
            one["metadata"]["name"]: {ip_address(ip).version: ip for ip in one["spec"]["clusterIPs"]}
            for one in made
            if one["kind"] == "Service"
        }


def ways_in(kernel: KernelLab, version: int) -> list[Way]:
    """By which the host outside gets to the Service, each of which ends on the Node."""
    outside, here = kernel.netns(OUTSIDE), kernel.addresses(NODE)[version]
    return [Way(outside, EXTERNAL[version], 80), Way(outside, here, NODE_PORT)]


@pytest.mark.parametrize("version", [4, 6])
def test_services_of_the_node_are_ipvs_and_those_of_its_pods_are_the_switchs(
    kernel: KernelLab, node: KernelNode, services: dict[str, dict[int, str]], version: int
) -> None:
    cluster_ip = services["web"][version]
    own, pod = (Way(kernel.netns(who), cluster_ip, 80) for who in (NODE, CLIENT))
    until_answered([own, pod, *ways_in(kernel, version)], node)
    servers = {(one.ip, one.port) for one in parse(node.run("cat", "/proc/net/ip_vs"))}
    assert servers >= {
        (cluster_ip, 80),
        (EXTERNAL[version], 80),
        (kernel.addresses(NODE)[version], NODE_PORT),
    }
    zone = {4: 65520, 6: 65510}[version]
    tracked = node.run("ovs-appctl", "dpctl/dump-conntrack", f"zone={zone}")
    assert f"src={kernel.addresses(CLIENT)[version]},dst={cluster_ip}" in tracked


@pytest.mark.parametrize("version", [4, 6])
def test_what_ends_on_the_node_is_judged_by_the_address_and_port_of_the_service(
    kernel: KernelLab, node: KernelNode, services: dict[str, dict[int, str]], version: int
) -> None:
    """By which address a client comes decides, as for processes of the Node. Other ports, and the Node itself, are not concerned."""
    outside, here, friend = kernel.netns(OUTSIDE), kernel.addresses(NODE)[version], FRIEND[version]
    own = Way(kernel.netns(NODE), services["web"][version], 80)
    judged = [*ways_in(kernel, version), Way(outside, here, ON_NODE)]
    free = [own, Way(outside, here, ALSO_ON_NODE), *(way._replace(source=friend) for way in judged)]
    ports = [{"protocol": "TCP", "port": port} for port in (80, NODE_PORT, ON_NODE)]
    length = {4: 32, 6: 128}[version]
    allowed = {"action": "Allow", "from": [{"ipBlock": {"cidr": f"{friend}/{length}"}}], "ports": ports}
    another = f"address add {friend}/{length} dev eth0 {'nodad ' if version == 6 else ''}preferred_lft 0"
    run(["ip", "-netns", OUTSIDE, *another.split()])
    with serving(kernel.netns(NODE), {ON_NODE: greeting, ALSO_ON_NODE: greeting}):
        until_answered([*judged, *free], node)
        with enforced(node, ingress=[allowed, {"action": "Drop", "ports": ports}]):
            assert [answered(way) for way in judged] == [False] * len(judged)
            until_answered(free, node)
        until_answered(judged, node)


@pytest.mark.parametrize("version", [4, 6])
def test_the_node_is_kept_from_a_service_and_not_from_its_endpoint(
    kernel: KernelLab, node: KernelNode, services: dict[str, dict[int, str]], version: int
) -> None:
    own = kernel.netns(NODE)
    through = Way(own, services["web"][version], 80)
    direct = Way(own, kernel.addresses(POD)[version], WEB)
    until_answered([through, direct], node)
    rule = {"action": "Drop", "toServices": [{"name": "web", "namespace": "default"}]}
    with enforced(node, egress=[rule]):
        assert not answered(through)
        until_answered([direct], node)
    until_answered([through], node)


def answer(question: bytes) -> bytes:
    """RFC 1035, 4.1: the address that its first label has the number of, by a pointer to the question's name."""
    end = question.index(b"\0", 12) + 5
    number, kind = int(question[14 : 13 + question[12]]), int.from_bytes(question[end - 4 : end - 2])
    version = {kind: version for version, kind in dns.TYPES.items()}[kind]
    packed = (ip_address(SITES[version].partition("/")[0]) + number).packed
    head = question[:2] + b"\x81\x80" + b"\0\1\0\1\0\0\0\0"
    record = b"\xc0\x0c" + question[end - 4 : end] + (60).to_bytes(4) + len(packed).to_bytes(2) + packed
    return head + question[12:end] + record


def answer_stream(stream: socket.socket) -> None:
    with stream.makefile("rwb") as ends:
        said = answer(ends.read(int.from_bytes(ends.read(2))))
        ends.write(len(said).to_bytes(2) + said)
        ends.flush()


@contextmanager
def resolver(netns: Path, addresses: dict[int, str]) -> Iterator[None]:
    """At port 53 of these, over UDP and TCP."""
    ends: list[socket.socket] = []
    for address in addresses.values():
        with namespace.entered(netns):
            ends.append(
                socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
            )
            ends[-1].bind((address, 53))
        threading.Thread(target=_answering, args=(ends[-1],), daemon=True).start()
    with serving(netns, {53: answer_stream}):
        yield
    for end in ends:
        end.close()


def _answering(end: socket.socket) -> None:
    while True:
        try:
            data, client = end.recvfrom(4096)
        except OSError:
            return
        end.sendto(answer(data), client)


def resolved(netns: Path, server: str, protocol: str, name: str, version: int) -> str:
    question = dns.query(name, dns.TYPES[version])
    if protocol == "udp":
        said = datagram(netns, server, 53, question)
    else:
        with (
            namespace.connect(netns, (server, 53), seconds=TIMEOUT) as stream,
            stream.makefile("rwb") as ends,
        ):
            ends.write(len(question).to_bytes(2) + question)
            ends.flush()
            said = ends.read(int.from_bytes(ends.read(2)))
    return str(ip_address(said[{4: -4, 6: -16}[version] :]))


def met(netns: Path, address: str) -> str:
    """What the first connection there meets."""
    try:
        namespace.connect(netns, (address, SITE), seconds=SECONDS).close()
    except OSError as error:
        return type(error).__name__
    return "open"


@pytest.fixture(scope="module")
def resolvers(
    kernel: KernelLab, node: KernelNode, services: dict[str, dict[int, str]]
) -> Iterator[dict[str, dict[int, str]]]:
    """By where they are, and IP version: outside, behind a Service that is ipvs, and on the Node itself."""
    outside = kernel.netns(OUTSIDE)
    for version, cidr in SITES.items():
        run(["ip", f"-{version}", "route", "add", cidr, "via", kernel.addresses(OUTSIDE)[version]])
        local = ("route", "add", "local", cidr, "dev", "lo")
        run(["ip", "-netns", OUTSIDE, f"-{version}", *local])
        node.run("ip", "address", "add", CACHE[version], "dev", "lo")
    ours = [f"ip {end}addr @ours4 notrack; ip6 {end}addr @ours6 notrack;" for end in "sd"]
    run(
        ["ip", "netns", "exec", NODE, "nft", "-f", "-"],
        stdin=UNTRACKED.format(CACHE=CACHE, rules=" ".join(ours)),
    )
    there = kernel.addresses(OUTSIDE)
    with (
        resolver(outside, there),
        resolver(kernel.netns(NODE), CACHE),
        serving(outside, {SITE: lambda stream: None}),
    ):
        yield {"outside": there, "service": services["names"], "cache": CACHE}


def test_the_first_connection_after_an_answer_that_the_kernel_holds_is_let_through(
    kernel: KernelLab, node: KernelNode, resolvers: dict[str, dict[int, str]]
) -> None:
    own = kernel.netns(NODE)
    allowed = {"action": "Allow", "to": [{"fqdn": "*.example.com"}]}
    rejected = {"action": "Reject", "to": [{"ipBlock": {"cidr": cidr}} for cidr in SITES.values()]}
    found: dict[tuple[str, str, int], list[str]] = {}
    number = 20
    with enforced(node, egress=[allowed, rejected]):
        node.wait_for(
            "the queue", lambda: "queue" in node.run("nft", "list", "chain", "inet", "antrea", "node-dns")
        )
        for where, servers in resolvers.items():
            for protocol in ("udp", "tcp"):
                for version, server in servers.items():
                    ask = partial(resolved, own, server, protocol, version=version)
                    assert met(own, ask(f"n{number}.other.com")) != "open"
                    names = [f"n{one}.example.com" for one in range(number + 1, number + 6)]
                    found[where, protocol, version] = [met(own, ask(name)) for name in names]
                    number += 10
    assert found == dict.fromkeys(found, ["open"] * 5)
