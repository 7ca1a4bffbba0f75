"""Direct server return without tunnels, with packets: client, Node and the other Node are on one network, and pass them on as they are."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_node import NODES, OUTSIDE, WEB
from proxy_node import BALANCED, LONG, PROXY_ALL, SERVER, SERVICE, Node, endpoints

from antrea.agent import unrealized_feed
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalAddress, LocalLink, Transport
from antrea.features.proxy.dsr_no_tunnel import PathRefused, refusal_text
from antrea.outside.netlink.host_feed import link_feed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import Namespaces

    from antrea.engine import Engine

NO_TUNNELS = msgspec.structs.replace(PROXY_ALL, traffic_encap_mode="noEncap")
PEER = ("192.0.2.2", "2001:db8:2::2")
REMOTE = ("10.10.1.12", "fd00:10:1::c")
INVALID = "; ".join(
    f"{tool} -A FORWARD -m conntrack --ctstate INVALID -j DROP" for tool in ("iptables", "ip6tables")
)
LINES = """        _, peer = udp.recvfrom(99)
        udp.sendto(peer[0].removeprefix("::ffff:").encode(), peer)
"""
ANSWERS_FROM_THERE = SERVER.replace(
    LINES,
    """        _, found, _, peer = udp.recvmsg(99, 99)
        there = [(41, socket.IPV6_PKTINFO, found[0][2][:16] + bytes(4))]
        udp.sendmsg([peer[0].removeprefix("::ffff:").encode()], there, 0, peer)
""",
).replace("def echo():", "def echo():\n    udp.setsockopt(41, socket.IPV6_RECVPKTINFO, 1)")
"""Over UDP, too, from the address that was asked."""
DIRECT_SERVER = ANSWERS_FROM_THERE.replace("8080", "80")
DSR_GATES = ("AntreaProxy", "LoadBalancerModeDSR")
KINDS = ("SOCK_STREAM", "SOCK_DGRAM")


class Segment(Node):
    """Another Node, `peer`, on the network of eth0, which the client's host bridges; each has told its MAC."""

    def start(self) -> None:
        super().start()
        own = self.mac_of("eth0", self.outside)
        moved = [
            f"ip addr del {ip} dev eth0; ip addr add {ip} dev br0"
            for ip in (f"{OUTSIDE[0]}/24", f"{OUTSIDE[1]}/64")
        ]
        routes = f"ip route replace 198.51.100.0/24 via {NODES[0]}; ip route replace 2001:db8:9::/48 via {NODES[1]}"
        lines = [
            f"ip link add br0 type bridge; ip link set br0 address {own}; ip link set eth0 master br0",
            "ip link set br0 up; echo 0 > /proc/sys/net/ipv6/conf/br0/accept_dad; ethtool -K br0 tx off",
            *moved,
            routes,
        ]
        self.netns.sh("; ".join(lines), self.outside)
        self.peer = self.netns.make()
        self.netns.sh(
            f"ip link add port1 type veth peer name eth0 netns {self.peer}; ip link set port1 master br0 up;"
            "ethtool -K port1 tx off",
            self.outside,
        )
        self.netns.sh(
            "ip link set eth0 up; ethtool -K eth0 tx off; echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore;"
            f"ip addr add {PEER[0]}/24 dev eth0; ip addr add {PEER[1]}/64 dev eth0 nodad",
            self.peer,
        )
        self.netns.sh(
            "for one in /proc/sys/net/ipv*/conf/*/accept_redirects; do echo 0 > $one; done", self.outside
        )
        networks = (f"{NODES[0]}/24", f"{NODES[1]}/64")
        card = self.mac_of("eth0")
        self.facts.put(Transport("eth0", "eth0", card, 1500, networks))
        self.facts.put(AgentNode("n1", NODES, NODES, pod_cidrs=("10.10.0.0/24", "fd00:10::/64"), mac=card))
        mac = self.mac_of("eth0", self.peer)
        self.facts.put(AgentNode("n2", PEER, PEER, pod_cidrs=("10.10.1.0/24", "fd00:10:1::/64"), mac=mac))
        self.netns.sh(INVALID)

    def put_endpoint_on_the_peer(self) -> None:
        """Behind a Service whose addresses it has, too."""
        held = [f"ip addr add {ip}/{128 if ':' in ip else 32} dev lo" for ip in (*BALANCED, *REMOTE)]
        self.netns.sh("; ".join(held), self.peer)
        for row in (msgspec.structs.replace(SERVICE, mode="dsr"), *endpoints(REMOTE, "n2")):
            self.facts.put(row)

    def make_card_anew(self) -> None:
        """Under its name and with its MAC, as a driver that is loaded again does it."""
        mac = self.mac_of("eth0")
        self.netns.sh("ip link del eth0")
        self.cable("eth0", self.outside, [f"{NODES[0]}/24", f"{NODES[1]}/64"])
        self.netns.sh(f"ip link set eth0 address {mac}")
        self.netns.sh("ip link set eth0 master br0", self.outside)

    @contextlib.asynccontextmanager
    async def following(self, engine: Engine) -> AsyncIterator[None]:
        """What an agent has beside its engine: interfaces, and refusals, become facts."""
        runs = (link_feed().run(self.facts), unrealized_feed.follow(engine, self.facts))
        work = [asyncio.create_task(one) for one in runs]
        try:
            yield
        finally:
            for task in work:
                task.cancel()


@pytest.fixture
def segment(netns: Namespaces) -> Iterator[Segment]:
    with Segment(netns).standing() as found:
        yield found


async def test_the_client_is_answered_by_the_endpoint_on_another_node_from_the_address_that_it_asked(
    segment: Segment,
) -> None:
    """The address is the Service's, or that of the Node with the NodePort; a connected client takes answers from no other."""
    node, peer = segment, segment.peer
    held = [f"ip addr add {ip}/{128 if ':' in ip else 32} dev lo" for ip in (*BALANCED, *NODES)]
    node.netns.sh("; ".join(held), peer)
    # who has the Node's own address does not answer when that asks for a neighbour
    mac = node.mac_of("eth0", peer)
    known = [f"ip neigh replace {ip} lladdr {mac} dev eth0 nud permanent" for ip in PEER]
    node.netns.sh("; ".join(known))
    mac = node.mac_of("br0", node.outside)
    known = [f"ip neigh replace {ip} lladdr {mac} dev eth0 nud permanent" for ip in OUTSIDE]
    node.netns.sh("; ".join(known), peer)
    for row in (msgspec.structs.replace(SERVICE, mode="dsr"), *endpoints(REMOTE, "n2")):
        node.facts.put(row)
    async with node.agent(NO_TUNNELS, "AntreaProxy", "LoadBalancerModeDSR") as engine:
        await node.until(lambda: all(node.facts.get(LocalAddress, ip) for ip in NODES))
        await engine.quiet()
        for port, places in ((80, BALANCED), (30080, NODES)):
            with node.serving(peer, ANSWERS_FROM_THERE.replace("8080", str(port))):
                for ip, source in zip(places, OUTSIDE, strict=True):
                    for kind in KINDS * 2:
                        assert await node.ask("outside", ip, kind, port, LONG) == source
        assert not engine.errors.counts


async def test_an_endpoint_answers_clients_whose_packets_came_by_another_node(segment: Segment) -> None:
    """Of two Endpoints the one of this Node gets all that the other Node passed on."""
    node, peer = segment, segment.peer
    node.netns.sh(
        "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding;"
        "for one in /proc/sys/net/ipv4/conf/*/send_redirects; do echo 0 > $one; done",
        peer,
    )
    other = ("192.0.2.4", "2001:db8:2::4")
    mac = node.mac_of("eth0", peer)
    node.facts.put(AgentNode("n4", other, other, pod_cidrs=("10.10.4.0/24", "fd00:10:4::/64"), mac=mac))
    for ip, own, hop in zip(BALANCED + other, NODES * 2, PEER * 2, strict=True):
        node.netns.sh(f"ip route add {ip} via {own}", peer)
        node.netns.sh(f"ip route replace {ip} via {hop}", node.outside)
    for row in (msgspec.structs.replace(SERVICE, mode="dsr"), *endpoints(WEB), *endpoints(REMOTE, "n2")):
        node.facts.put(row)
    async with node.agent(NO_TUNNELS, "AntreaProxy", "LoadBalancerModeDSR") as engine:
        with node.serving(node.pods["web"], SERVER):
            for port, places in ((80, BALANCED), (30080, other)):
                for ip, source in zip(places, OUTSIDE, strict=True):
                    for kind in KINDS * 3:
                        assert await node.ask("outside", ip, kind, port, LONG) == source
        assert not engine.errors.counts


async def test_what_is_for_a_node_that_is_not_known_goes_nowhere(segment: Segment) -> None:
    """It would come back to the switch, and go round and round until its time to live is over."""
    node = segment
    async with node.agent(NO_TUNNELS, "AntreaProxy", "LoadBalancerModeDSR") as engine:
        await engine.quiet()
        rules = node.netns.sh("nft list chain inet antrea prerouting-raw")
        assert "ether saddr 02:eb:00:00:00:00-02:eb:ff:ff:ff:ff drop" in rules
        shown = node.netns.sh("nft list ruleset")
        assert shown.index("chain hops-4") > 0
        assert "priority raw - 10" in shown
        assert not engine.errors.counts


async def test_packets_are_passed_on_by_a_card_that_was_made_anew_under_its_name(segment: Segment) -> None:
    """Rules hold the index of the card, which is another one then."""
    node = segment
    node.put_endpoint_on_the_peer()
    async with node.agent(NO_TUNNELS, *DSR_GATES) as engine, node.following(engine):
        await node.until(lambda: node.facts.get(LocalLink, "eth0") is not None)
        await engine.quiet()
        with node.serving(node.peer, DIRECT_SERVER):
            assert await node.asks("outside", BALANCED) == OUTSIDE * 2
            before = node.facts.need(LocalLink, "eth0")
            node.make_card_anew()
            await node.until(lambda: node.facts.get(LocalLink, "eth0") not in (None, before))
            await engine.quiet()
            await node.becomes(OUTSIDE * 2, "outside", BALANCED)


async def test_where_nft_refuses_the_rules_packets_are_translated_until_it_takes_them(
    segment: Segment,
) -> None:
    """It refuses those that name a card that is not there, as it does where the kernel has no module for them."""
    node, told = segment, list[str]()
    node.put_endpoint_on_the_peer()
    link = node.facts.need(Transport)
    node.facts.put(msgspec.structs.replace(link, interface="card", device="card"))
    ways = [
        f"ip route add {cidr} via {hop}"
        for cidr, hop in zip(("10.10.1.0/24", "fd00:10:1::/64"), PEER, strict=True)
    ]
    node.netns.sh("; ".join(ways))

    async def tell(act: PathRefused) -> None:
        told.append(act.message)

    async with (
        node.agent(NO_TUNNELS, *DSR_GATES, more={PathRefused: tell}) as engine,
        node.following(engine),
    ):
        await node.until(lambda: "IPv4 and IPv6" in refusal_text(node.facts))
        with node.serving(node.peer, DIRECT_SERVER), node.serving(node.peer, ANSWERS_FROM_THERE):
            await node.becomes(NODES * 2, "outside", BALANCED)
            assert "IPv4 and IPv6" in told[-1]
            assert "served in mode nat" in told[-1]
            node.netns.sh("ip link set eth0 name card")
            await node.until(lambda: not refusal_text(node.facts))
            # one that begins while the way changes does not go on
            await node.becomes(OUTSIDE * 2, "outside", BALANCED, seconds=5)
