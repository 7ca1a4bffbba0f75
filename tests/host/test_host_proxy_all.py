"""proxyAll with packets: whoever asks for a Service, wherever its Endpoint is, is answered, in both families, over TCP and UDP."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_node import CONFIG, NODES, OUTSIDE, WEB, PolicyNode

from antrea.config.agent_sections import AntreaProxy
from antrea.facts.member import AgentNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service, ServiceEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces


PROXY_ALL = msgspec.structs.replace(CONFIG, antrea_proxy=AntreaProxy(proxy_all=True))
CLUSTER, EXTERNAL, BALANCED = (
    ("10.96.0.10", "fd00:96::a"),
    ("198.51.100.9", "2001:db8:9::9"),
    ("198.51.100.8", "2001:db8:9::8"),
)
GATEWAYS, VIRTUAL, NEAR = (
    ("10.10.0.1", "fd00:10::1"),
    ("169.254.0.253", "fc01::aabb:ccdd:eeff"),
    ("10.10.0.8", "fd00:10::8"),
)
SERVICE = Service(
    "shop",
    "web",
    CLUSTER + EXTERNAL + BALANCED,
    (("TCP", 80), ("UDP", 80)),
    external_ips=EXTERNAL + BALANCED,
    port_names=("tcp", "udp"),
    node_ports=(30080, 30080),
    load_balancer_ips=BALANCED,
)
SERVER = """
import socket, threading
tcp = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True)
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.bind(("::", 8080))
print("listening", flush=True)
def echo():
    while True:
        _, peer = udp.recvfrom(99)
        udp.sendto(peer[0].removeprefix("::ffff:").encode(), peer)
threading.Thread(target=echo, daemon=True).start()
while True:
    client, peer = tcp.accept()
    client.sendall(peer[0].removeprefix("::ffff:").encode())
    client.close()
"""
"""Answers with the address of whom it sees."""
CLIENT = """
import errno, socket, sys
address, kind, port = sys.argv[1], getattr(socket, sys.argv[2]), int(sys.argv[3])
with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as client:
    client.settimeout(float(sys.argv[4]))
    try:
        client.connect((address, port))
        if kind == socket.SOCK_DGRAM:
            client.send(b"hello")
        print(client.recv(99).decode())
    except OSError as no:
        print(errno.errorcode.get(no.errno, "timeout"))
"""
LONG, SHORT = 30.0, 1.0
"""Seconds: for an answer that has to come, and for one that must not."""


def endpoints(ips: tuple[str, str], node: str = "n1") -> list[ServiceEndpoint]:
    """Behind both ports, in both families."""
    return [
        ServiceEndpoint(
            f"shop/web-{ip}", "shop/web", protocol.lower(), protocol, ip, 8080, node, True, True, False
        )
        for ip in ips
        for protocol in ("TCP", "UDP")
    ]


class Node(PolicyNode):
    """And a neighbour that sends it packets for external addresses."""

    def start(self) -> None:
        super().start()
        self.netns.sh(
            f"ip route add 198.51.100.0/24 via {NODES[0]}; ip route add 2001:db8:9::/48 via {NODES[1]}",
            self.outside,
        )
        # a Node has a default route, whose neighbour must not get what is for Services
        self.netns.sh(f"ip route add default via {OUTSIDE[0]}; ip -6 route add default via {OUTSIDE[1]}")
        self.pods["node"] = self.netns.home
        self.facts.put(AgentNode("n1", NODES, NODES, pod_cidrs=("10.10.0.0/24", "fd00:10::/64")))
        self.facts.put(AgentNode("n2", OUTSIDE, OUTSIDE, pod_cidrs=("10.10.1.0/24", "fd00:10:1::/64")))

    def plug_peer(self) -> str:
        """Another Node as the tunnel leads to it, with the load balancer's addresses, and a way back to the host outside."""
        peer = self.netns.make()
        self.cable("antrea-tun0", peer)
        self.switch.vsctl("add-port", "br-int", "antrea-tun0")
        number, mac = self.ofport("antrea-tun0"), self.mac_of("antrea-tun0")
        self.facts.put(OvsPort("antrea-tun0", "tunnel", number, mac))
        self.netns.sh(
            f"ip link add back type veth peer name eth1 netns {peer}; ip link set back up", self.outside
        )
        self.netns.sh(
            "ip addr add 203.0.113.1/24 dev back; ip addr add 2001:db8:7::1/64 dev back nodad", self.outside
        )
        self.netns.sh("ethtool -K back tx off", self.outside)
        lines = [
            "ip link set eth0 address aa:bb:cc:dd:ee:ff; ip link set eth1 up; ethtool -K eth1 tx off",
            "ip addr add 203.0.113.2/24 dev eth1; ip addr add 2001:db8:7::2/64 dev eth1 nodad",
            f"ip addr add {BALANCED[0]}/32 dev lo; ip addr add {BALANCED[1]}/128 dev lo nodad",
            f"ip route add {OUTSIDE[0]} via 203.0.113.1; ip route add {OUTSIDE[1]} via 2001:db8:7::1",
        ]
        self.netns.sh("; ".join(lines), peer)
        for space in (peer, self.outside):  # packets come by another way than they go
            self.netns.sh("for one in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $one; done", space)
        return peer

    async def asks(
        self, who: str, to: tuple[str, str], port: int = 80, *, seconds: float = LONG
    ) -> tuple[str, ...]:
        """What it is answered over TCP in IPv4 and IPv6, and over UDP."""
        kinds = [(ip, kind) for kind in ("SOCK_STREAM", "SOCK_DGRAM") for ip in to]
        runs = (self.ask(who, ip, kind, port, seconds) for ip, kind in kinds)
        return tuple(await asyncio.gather(*runs))

    async def ask(self, who: str, ip: str, kind: str, port: int, seconds: float) -> str:
        words = ["ip", "netns", "exec", self.pods[who], sys.executable, "-c", CLIENT]
        asked = [*words, ip, kind, str(port), str(seconds)]
        await asyncio.to_thread(self.switch.revalidate)
        run = await asyncio.to_thread(subprocess.run, asked, stdout=-1, text=True, check=True, timeout=60)
        return str(run.stdout.strip())

    async def becomes(
        self, wanted: tuple[str, ...], who: str, to: tuple[str, str], port: int = 80, *, seconds: float = LONG
    ) -> None:
        """The switch may judge by what stood before while it looks its cache through."""
        deadline = time.monotonic() + LONG
        while (found := await self.asks(who, to, port, seconds=seconds)) != wanted:
            assert time.monotonic() < deadline, (found, wanted)


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


async def test_a_pod_of_the_node_answers_all_who_ask_for_its_service(node: Node) -> None:
    for row in (SERVICE, *endpoints(WEB)):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(node.pods["web"], SERVER):
            outside = [(NODES, 30080), (EXTERNAL, 80), (BALANCED, 80)]
            for to, port in outside:
                assert await node.asks("outside", to, port) == OUTSIDE * 2
                assert await node.asks("near", to, port) == NEAR * 2
                assert await node.asks("node", to, port) == GATEWAYS * 2
            assert await node.asks("node", CLUSTER) == GATEWAYS * 2
            assert await node.asks("near", CLUSTER) == NEAR * 2
        assert not engine.errors.counts


async def test_services_of_a_second_range_are_reached_beside_those_of_the_first(node: Node) -> None:
    """Of a ServiceCIDR that was added later, far from the first; what lies between the two is not taken."""
    second = ("203.0.113.10", "2001:db8:cb00::a")
    other = msgspec.structs.replace(
        SERVICE, name="api", ips=second, external_ips=(), load_balancer_ips=(), node_ports=(30081, 30081)
    )
    behind = [
        msgspec.structs.replace(row, slice=f"shop/api-{row.ip}", service=other.key) for row in endpoints(WEB)
    ]
    for row in (SERVICE, *endpoints(WEB)):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(node.pods["web"], SERVER):
            assert await node.asks("node", CLUSTER) == GATEWAYS * 2
            for row in (other, *behind):
                node.facts.put(row)
            await engine.quiet()
            for to in (second, CLUSTER):
                assert await node.asks("node", to) == GATEWAYS * 2
                assert await node.asks("near", to) == NEAR * 2
            assert await node.asks("outside", NODES, 30081) == OUTSIDE * 2
        for beside in ("203.0.113.11", "2001:db8:cb00::b", "150.0.0.1"):
            assert "dev antrea-gw0" not in node.netns.sh(f"ip route get {beside}")
        assert not engine.errors.counts


async def test_a_host_that_is_an_endpoint_answers_all_who_ask_for_its_service(node: Node) -> None:
    """The neighbour is another Node here; it sees this Node, whoever asks."""
    for row in (SERVICE, *endpoints(OUTSIDE, "n2")):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(node.outside, SERVER):
            assert await node.asks("node", CLUSTER) == NODES * 2
            for to, port in [(NODES, 30080), (EXTERNAL, 80), (BALANCED, 80)]:
                assert await node.asks("outside", to, port) == NODES * 2
                assert await node.asks("near", to, port) == NODES * 2
                assert await node.asks("node", to, port) == NODES * 2
        assert not engine.errors.counts


async def test_the_node_itself_is_an_endpoint(node: Node) -> None:
    for row in (SERVICE, *endpoints(NODES)):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy"):
        with node.serving(node.netns.home, SERVER):
            assert await node.asks("node", CLUSTER) == VIRTUAL * 2
            assert await node.asks("outside", NODES, 30080) == VIRTUAL * 2
            assert await node.asks("outside", BALANCED) == VIRTUAL * 2
            # a UDP server at all addresses answers a Pod from the gateway's, Service or not
            assert await node.ask("near", CLUSTER[0], "SOCK_STREAM", 80, LONG) == NEAR[0]
            assert await node.ask("near", CLUSTER[1], "SOCK_STREAM", 80, LONG) == NEAR[1]


async def test_what_is_turned_away_and_what_goes_on_as_the_service_changes(node: Node) -> None:
    refused, dropped = ("ECONNREFUSED",) * 2, ("timeout",) * 2
    for row in (SERVICE, *endpoints(WEB)):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(node.pods["web"], SERVER):
            assert await node.asks("outside", BALANCED) == OUTSIDE * 2
            ranges = ("203.0.113.0/24", "2001:db8:77::/48")
            node.facts.put(msgspec.structs.replace(SERVICE, source_ranges=ranges))
            await engine.quiet()
            await node.becomes(dropped * 2, "outside", BALANCED, seconds=SHORT)
            assert await node.asks("outside", EXTERNAL) == OUTSIDE * 2

            local = msgspec.structs.replace(SERVICE, external_local=True)
            for row in (local, *endpoints(OUTSIDE, "n2")):
                node.facts.put(row)
            for row in endpoints(WEB):
                node.facts.drop(ServiceEndpoint, row.key)
            await engine.quiet()
            await node.becomes(dropped * 2, "outside", NODES, 30080, seconds=SHORT)

            for row in endpoints(OUTSIDE, "n2"):
                node.facts.drop(ServiceEndpoint, row.key)
            await engine.quiet()
            deadline = time.monotonic() + LONG
            while (found := await node.asks("outside", NODES, 30080))[:2] != refused:
                assert time.monotonic() < deadline, found

            node.facts.drop(Service, SERVICE.key)
            await engine.quiet()
            elements = node.netns.sh("nft list table inet antrea")
            assert "30080" not in elements
            assert "198.51.100.9" not in elements
            assert "10.96.0.10" not in node.netns.sh("ip route")
        assert not engine.errors.counts


async def test_an_endpoint_on_another_node_answers_the_client_directly(node: Node) -> None:
    """A cable takes the place of the tunnel; at its other end the Service's own address answers, by a way of its own."""
    peer = node.plug_peer()
    remote = ("10.10.1.12", "fd00:10:1::c")
    for row in (msgspec.structs.replace(SERVICE, mode="dsr"), *endpoints(remote, "n2")):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy", "LoadBalancerModeDSR") as engine:
        with node.serving(peer, SERVER.replace("8080", "80")):
            for ip, source in zip(BALANCED, OUTSIDE, strict=True):
                for _ in range(3):
                    assert await node.ask("outside", ip, "SOCK_STREAM", 80, LONG) == source
        assert not engine.errors.counts


async def test_an_endpoint_answers_clients_whose_packets_came_by_another_node(node: Node) -> None:
    """Whose own address it sees; the answers leave by its own Node."""
    peer = node.plug_peer()
    node.netns.sh(
        "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding", peer
    )
    node.netns.sh("ip link set eth0 address 0e:00:00:00:00:01", peer)
    ways = zip(BALANCED, OUTSIDE, ("203.0.113.2", "2001:db8:7::2"), (32, 128), strict=True)
    for ip, source, hop, bits in ways:
        node.netns.sh(f"ip addr del {ip}/{bits} dev lo; ip route add {ip} dev eth0", peer)
        node.netns.sh(f"ip neigh add {ip} lladdr aa:bb:cc:dd:ee:ff dev eth0 nud permanent", peer)
        node.netns.sh(f"ip route add {ip} via {hop} src {source}", node.outside)
    for row in (msgspec.structs.replace(SERVICE, mode="dsr"), *endpoints(WEB)):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy", "LoadBalancerModeDSR") as engine:
        with node.serving(node.pods["web"], SERVER):
            for ip, source in zip(BALANCED, OUTSIDE, strict=True):
                for kind in ("SOCK_STREAM", "SOCK_DGRAM"):
                    assert await node.ask("outside", ip, kind, 80, LONG) == source
        assert not engine.errors.counts
