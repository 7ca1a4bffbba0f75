"""proxyAll with packets: whoever asks for a Service, wherever its Endpoint is, is answered, in both families, over TCP and UDP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_node import NODES, OUTSIDE, WEB
from proxy_node import (
    BALANCED,
    CLUSTER,
    EXTERNAL,
    GATEWAYS,
    LONG,
    NEAR,
    PROXY_ALL,
    SERVER,
    SERVICE,
    SHORT,
    VIRTUAL,
    Node,
    endpoints,
)

from antrea.config.agent_sections import AntreaProxy
from antrea.facts.member import AgentNode
from antrea.facts.service import Service, ServiceEndpoint
from antrea.openflow.meter import PacketInMeter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces


INVALID = "; ".join(
    f"{tool} -N KUBE-FORWARD && {tool} -A FORWARD -j KUBE-FORWARD && {tool} -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP"
    for tool in ("iptables", "ip6tables")
)
"""kube-proxy's rule, of mode iptables."""
REFUSED = ("ECONNREFUSED",) * 4
"""Over TCP by a reset, and over UDP since the port is unreachable."""
SCAN = """
import socket, time
scanner = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("listening", flush=True)
while True:
    for port in range(1000, 1020):
        scanner.sendto(b"", ("198.51.100.9", port))
    time.sleep(0.05)
"""
"""Asks an external address at 400 ports a second that no Service has."""
FIREWALL = """
add table inet firewall
add chain inet firewall input { type filter hook input priority 5; }
add rule inet firewall input tcp dport 9 counter drop
add set inet firewall hosts { type ipv4_addr; }
add element inet firewall hosts { 10.96.0.10, 192.0.2.1 }
add chain inet firewall nat { type nat hook prerouting priority dstnat; }
add rule inet firewall nat ip daddr @hosts tcp dport 31999 redirect to :31998
"""
"""Of another program: it has addresses of the Service and the Node, and hooks beside those of the agent."""


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
            # who has a route to ClusterIPs by this Node
            ways = [f"ip route add {ip} via {own}" for ip, own in zip(CLUSTER, NODES, strict=True)]
            node.netns.sh("; ".join(ways), node.outside)
            assert await node.asks("outside", CLUSTER) == OUTSIDE * 2
        assert not engine.errors.counts


async def test_a_port_that_no_service_has_is_refused_at_the_address_of_one(node: Node) -> None:
    """As by kube-proxy in mode nftables: whoever asks, by TCP and UDP."""
    for row in (SERVICE, *endpoints(WEB)):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(node.pods["web"], SERVER):
            ways = [f"ip route add {ip} via {own}" for ip, own in zip(CLUSTER, NODES, strict=True)]
            node.netns.sh("; ".join(ways), node.outside)
            for who in ("near", "node", "outside"):
                assert await node.asks(who, CLUSTER, 81) == REFUSED, who
            assert await node.asks("near", CLUSTER) == NEAR * 2
        assert not engine.errors.counts


async def until_metered(node: Node) -> None:
    """More packets come for ports that no Service has than the agent is sent."""
    asked = ("meter-stats", "br-int", f"meter={int(PacketInMeter.UNSERVED_PORT)}")
    async with asyncio.timeout(LONG):
        while "0: packet_count:0 " in await asyncio.to_thread(node.switch.ofctl, *asked):  # noqa: ASYNC110 (the switch counts)
            await asyncio.sleep(0.05)


async def test_who_tries_ports_that_no_service_has_keeps_nobody_from_being_refused(node: Node) -> None:
    node.facts.put(SERVICE)
    config = msgspec.structs.replace(PROXY_ALL, packet_in_rate=20)
    async with node.agent(config, "AntreaProxy") as engine:
        with node.serving(node.outside, SCAN):
            await until_metered(node)
            for who in ("near", "node", "outside"):
                assert await node.asks(who, EXTERNAL, seconds=SHORT) == REFUSED, who
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
    dropped = ("timeout",) * 2
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
            await node.becomes(REFUSED, "outside", NODES, 30080)
            assert await node.asks("near", CLUSTER) == REFUSED
            assert await node.asks("node", CLUSTER) == REFUSED

            node.facts.drop(Service, SERVICE.key)
            await engine.quiet()
            elements = node.netns.sh("nft list table inet antrea")
            assert "30080" not in elements
            assert "198.51.100.9" not in elements
            assert "10.96.0.10" not in node.netns.sh("ip route")
        assert not engine.errors.counts


def rules_of_others(node: Node) -> str:
    """Without counters and times."""
    saved = "iptables-save; ip6tables-save; nft -s list table inet firewall"
    lines = node.netns.sh(saved).splitlines()
    return "\n".join(line.partition(" [")[0] for line in lines if not line.startswith("#"))


async def test_rules_of_other_programs_stay_as_they_are(node: Node) -> None:
    """While the agent starts, Services come and go, and `proxyAll` is turned off."""
    node.netns.sh(INVALID)
    node.netns.sh(f"nft -f - <<'END'\n{FIREWALL}\nEND")
    before = rules_of_others(node)
    for row in endpoints(WEB):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy", "LoadBalancerModeDSR") as engine:
        for mode in ("nat", "dsr"):
            node.facts.put(msgspec.structs.replace(SERVICE, mode=mode))
            await engine.quiet()
            assert "30080" in node.netns.sh("nft list table inet antrea")
            assert rules_of_others(node) == before
        node.facts.drop(Service, SERVICE.key)
        node.facts.put(msgspec.structs.replace(PROXY_ALL, antrea_proxy=AntreaProxy()))
        await engine.quiet()
        assert "30080" not in node.netns.sh("nft list table inet antrea")
        assert rules_of_others(node) == before
        assert not engine.errors.counts
    assert "firewall" in before
    assert "KUBE-FORWARD" in before


async def test_addresses_that_are_left_out_reach_whoever_has_them(node: Node) -> None:
    """NodePorts at other addresses than those of `nodePortAddresses`, and a load balancer's with `proxyLoadBalancerIPs: false`."""
    other = ("192.0.2.77", "2001:db8:2::77")
    node.netns.sh(f"ip addr add {other[0]}/24 dev eth0; ip addr add {other[1]}/64 dev eth0 nodad")
    node.netns.sh(
        f"ip addr add {BALANCED[0]}/32 dev lo; ip addr add {BALANCED[1]}/128 dev lo nodad", node.outside
    )
    proxy = AntreaProxy(
        proxy_all=True,
        proxy_load_balancer_ips=False,
        node_port_addresses=(f"{NODES[0]}/32", f"{NODES[1]}/128"),
    )
    for row in (SERVICE, *endpoints(WEB)):
        node.facts.put(row)
    config = msgspec.structs.replace(PROXY_ALL, antrea_proxy=proxy)
    async with node.agent(config, "AntreaProxy") as engine:
        with node.serving(node.pods["web"], SERVER), node.serving(node.outside, SERVER.replace("8080", "80")):
            assert await node.asks("outside", NODES, 30080) == OUTSIDE * 2
            assert await node.asks("outside", other, 30080) == REFUSED
            for ip, *sources in zip(BALANCED, NODES, other, strict=True):
                assert await node.ask("near", ip, "SOCK_STREAM", 80, LONG) in sources
            node.facts.put(PROXY_ALL)
            await engine.quiet()
            await node.becomes(OUTSIDE * 2, "outside", other, 30080)
            await node.becomes(NEAR * 2, "near", BALANCED)
        assert not engine.errors.counts


async def test_a_port_that_a_program_of_the_node_has_is_the_services_as_long_as_there_is_one(
    node: Node,
) -> None:
    """As with kube-proxy: the program gets what comes before and after."""
    of_program = ("program",) * 4
    seen = 'peer[0].removeprefix("::ffff:").encode()'
    program = SERVER.replace("8080", "30080").replace(seen, 'b"program"')
    for row in endpoints(WEB):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(node.netns.home, program), node.serving(node.pods["web"], SERVER):
            assert await node.asks("outside", NODES, 30080) == of_program
            node.facts.put(SERVICE)
            await engine.quiet()
            await node.becomes(OUTSIDE * 2, "outside", NODES, 30080)
            node.facts.drop(Service, SERVICE.key)
            await engine.quiet()
            await node.becomes(of_program, "outside", NODES, 30080)
        assert not engine.errors.counts


@pytest.mark.parametrize("proxy_all", [False, True])
async def test_pods_reach_a_cache_of_the_node_at_the_address_of_a_skipped_service(
    node: Node, proxy_all: bool
) -> None:
    """As NodeLocal DNSCache has it: the Service's address on the Node, whose packets nobody tracks."""
    node.netns.sh("; ".join(f"ip addr add {ip} dev lo" for ip in CLUSTER))
    for ip, tool in zip(CLUSTER, ("iptables", "ip6tables"), strict=True):
        node.netns.sh(
            f"{tool} -t raw -A PREROUTING -d {ip} -j NOTRACK; {tool} -t raw -A OUTPUT -s {ip} -j NOTRACK"
        )
    seen = 'peer[0].removeprefix("::ffff:").encode()'
    cache = (
        SERVER.replace("8080", "80").replace(seen, 'b"cache"').replace('("::", 80)', f'("{CLUSTER[1]}", 80)')
    )
    cache4 = (
        cache.replace(CLUSTER[1], CLUSTER[0])
        .replace("AF_INET6, dualstack_ipv6=True", "AF_INET")
        .replace("INET6", "INET")
    )
    for row in (SERVICE, *endpoints(WEB)):
        node.facts.put(row)
    all_ = AntreaProxy(proxy_all=proxy_all)
    skipped = msgspec.structs.replace(all_, skip_services=(SERVICE.key,))
    config = msgspec.structs.replace(PROXY_ALL, antrea_proxy=skipped)
    async with node.agent(config, "AntreaProxy") as engine:
        with (
            node.serving(node.netns.home, cache),
            node.serving(node.netns.home, cache4),
            node.serving(node.pods["web"], SERVER),
        ):
            assert await node.asks("near", CLUSTER) == ("cache",) * 4
            node.facts.put(msgspec.structs.replace(config, antrea_proxy=all_))
            await engine.quiet()
            await node.becomes(NEAR * 2, "near", CLUSTER)
        assert not engine.errors.counts


async def test_an_endpoint_on_another_node_answers_the_client_directly(node: Node) -> None:
    """A cable takes the place of the tunnel; at its other end the address that was asked answers, by a way of its own.

    It is the Service's, or that of the Node with the NodePort. A rule that drops invalid packets is in nobody's way, as the host does not track these.
    """
    peer = node.plug_peer()
    node.netns.sh(f"ip addr add {NODES[0]}/32 dev lo; ip addr add {NODES[1]}/128 dev lo nodad", peer)
    node.netns.sh(INVALID)
    remote = ("10.10.1.12", "fd00:10:1::c")
    for row in (msgspec.structs.replace(SERVICE, mode="dsr"), *endpoints(remote, "n2")):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy", "LoadBalancerModeDSR") as engine:
        for port, places in ((80, BALANCED), (30080, NODES)):
            with node.serving(peer, SERVER.replace("8080", str(port))):
                for ip, source in zip(places, OUTSIDE, strict=True):
                    for _ in range(3):
                        assert await node.ask("outside", ip, "SOCK_STREAM", port, LONG) == source
        assert not engine.errors.counts


async def test_an_endpoint_of_the_node_itself_answers_from_the_address_that_was_asked(node: Node) -> None:
    """At a NodePort with direct server return, whose packets the host does not track."""
    node.netns.sh(INVALID)
    for row in (msgspec.structs.replace(SERVICE, mode="dsr"), *endpoints(WEB)):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy", "LoadBalancerModeDSR") as engine:
        with node.serving(node.pods["web"], SERVER):
            assert await node.asks("outside", NODES, 30080) == OUTSIDE * 2
            assert await node.asks("node", NODES, 30080) == GATEWAYS * 2
            assert await node.asks("near", NODES, 30080) == NEAR * 2
        assert not engine.errors.counts


async def test_an_endpoint_answers_clients_whose_packets_came_by_another_node(node: Node) -> None:
    """Whose own address it sees; the answers leave by its own Node, where a rule drops invalid packets."""
    peer = node.plug_peer()
    node.netns.sh(INVALID)
    node.netns.sh(
        "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding", peer
    )
    node.netns.sh("ip link set eth0 address 0e:00:00:00:00:01", peer)
    node.netns.sh(f"ip addr del {BALANCED[0]}/32 dev lo; ip addr del {BALANCED[1]}/128 dev lo", peer)
    other = ("192.0.2.4", "2001:db8:2::4")
    node.facts.put(AgentNode("n4", other, other, pod_cidrs=("10.10.4.0/24", "fd00:10:4::/64")))
    hops = ("203.0.113.2", "2001:db8:7::2")
    for ip, source, hop in zip(BALANCED + other, OUTSIDE * 2, hops * 2, strict=True):
        node.netns.sh(f"ip route add {ip} dev eth0", peer)
        node.netns.sh(f"ip neigh add {ip} lladdr aa:bb:cc:dd:ee:ff dev eth0 nud permanent", peer)
        node.netns.sh(f"ip route add {ip} via {hop} src {source}", node.outside)
    for row in (msgspec.structs.replace(SERVICE, mode="dsr"), *endpoints(WEB)):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy", "LoadBalancerModeDSR") as engine:
        with node.serving(node.pods["web"], SERVER):
            for port, places in ((80, BALANCED), (30080, other)):
                for ip, source in zip(places, OUTSIDE, strict=True):
                    for kind in ("SOCK_STREAM", "SOCK_DGRAM"):
                        assert await node.ask("outside", ip, kind, port, LONG) == source
        assert not engine.errors.counts
