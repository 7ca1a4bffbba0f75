"""A Node with proxyAll, a Service with every kind of address, and clients in both families over TCP and UDP."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import msgspec
from policy_node import CONFIG, NODES, OUTSIDE, PolicyNode

from antrea.config.agent_sections import AntreaProxy
from antrea.facts.member import AgentNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service, ServiceEndpoint

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

    client = CLIENT

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
        words = ["ip", "netns", "exec", self.pods[who], sys.executable, "-c", self.client]
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
