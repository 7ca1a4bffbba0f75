"""Whether a Node is heard in its own networks, on the wire: a gateway and another Node answer it, or the port of its switch drops what they do."""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING, Any

import pytest

from antrea.engine import Facts
from antrea.facts.external_ip import AnsweringNetwork, ExternalIPOwner
from antrea.features.service_external_ip.agent_part import network_feed
from antrea.features.service_external_ip.agent_part.network_feed import NetworkFeed
from antrea.features.service_external_ip.network import AskedNetwork
from antrea.outside.neighbour.probe_failure import failed_probe_metrics
from antrea.outside.netlink.transport_interface import cards

if TYPE_CHECKING:
    from conftest import Namespaces

VERSIONS = pytest.mark.parametrize("version", [4, 6])
NETWORKS = {4: "192.0.2.0/24", 6: "2001:db8::/64"}
NODES = {4: "192.0.2.1", 6: "2001:db8::1"}
PEERS = {4: "192.0.2.2", 6: "2001:db8::2"}
ROUTERS = {4: "192.0.2.254", 6: "fe80::254"}
IPS = {4: "192.0.2.40", 6: "2001:db8::40"}
MATCHES = {4: f"arp saddr ip {IPS[4]}", 6: f"ip6 saddr {IPS[6]}"}
"""What a Node sends as the owner of an external IP."""
FORMER_MAC = "02:00:00:00:00:99"
"""MAC address of the former owner of an external IP."""
ALL = {4: "meta protocol arp", 6: "meta protocol ip6"}


class Net:
    """Card eth0 of the Node, a switch, and behind it a router and another Node. The switch end of the Node's cable is `port`."""

    def __init__(self, netns: Namespaces) -> None:
        self.netns, self.facts, self.feed = netns, Facts(), NetworkFeed("n1")
        self.switch, self.router, self.peer = netns.make(), netns.make(), netns.make()
        netns.sh("ip link add sw type bridge mcast_snooping 0; ip link set sw up", self.switch)
        ends = ((netns.home, "port", NODES), (self.router, "router", ROUTERS), (self.peer, "peer", PEERS))
        for space, port, ips in ends:
            netns.sh(
                f"ip link add {port} type veth peer name eth0 netns {space}; ip link set {port} up master sw",
                self.switch,
            )
            netns.sh(
                f"sysctl -qw net.ipv6.conf.eth0.accept_dad=0 net.ipv6.conf.eth0.keep_addr_on_down=1; ip link set eth0 up; ip addr add {ips[4]}/24 dev eth0;"
                f" ip addr add {ips[6]}/64 dev eth0 nodad",
                space,
            )
        netns.sh(f"ip route add default via {ROUTERS[4]}; ip -6 route add default via {ROUTERS[6]} dev eth0")

    def drops(self, match: str = "") -> None:
        """At the Node's port of the switch, of what the Node sends, these frames; empty: none."""
        self.netns.sh("nft 'add table netdev lost; delete table netdev lost'", self.switch)
        if match:
            self.netns.sh(
                "nft 'table netdev lost { chain sent { type filter hook ingress device port priority 0;"
                f" {match} drop; }}; }}'",
                self.switch,
            )

    async def rounds(self, asked: AskedNetwork, count: int) -> AnsweringNetwork | None:
        for _ in range(count):
            await self.feed.round(self.facts, [asked])
        return self.facts.get(AnsweringNetwork, f"eth0 {asked.network}")


def asked(version: int, *, owner: bool, node: bool = True) -> AskedNetwork:
    nodes, ips = ((PEERS[version],) if node else ()), ((IPS[version],) if owner else ())
    return AskedNetwork("eth0", NETWORKS[version], nodes, ips, silent=False)


def own(net: Net, version: int, node: str = "n1") -> None:
    net.facts.put(ExternalIPOwner("shop/web", IPS[version], "p", node))


@VERSIONS
async def test_gateways_are_next_hops_of_the_card_that_are_neighbours(
    netns: Namespaces, version: int
) -> None:
    Net(netns)
    netns.sh(
        "ip link add eth1 type veth peer name far; ip link set eth1 up; ip addr add 198.51.100.1/24 dev eth1;"
        " ip route add 203.0.113.0/24 via 192.0.2.7; ip route add 203.0.114.0/24 via 198.51.100.9"
    )
    found = await cards()
    expected = {4: (ROUTERS[4], "192.0.2.7"), 6: (ROUTERS[6],)}[version]
    assert network_feed.gateways(found, "eth0", NETWORKS[version]) == expected
    assert network_feed.gateways(found, "eth1", NETWORKS[version]) == ()


@VERSIONS
async def test_a_cut_card_is_noticed_and_that_it_is_whole(netns: Namespaces, version: int) -> None:
    net = Net(netns)
    own(net, version)
    here = AnsweringNetwork("eth0", NETWORKS[version], True, (ROUTERS[version], PEERS[version]))
    one = asked(version, owner=True)
    assert await net.rounds(one, 2) == here
    # while the router, or the other Node, is there, nothing is missed
    netns.sh("ip link set eth0 down", net.router)
    assert await net.rounds(one, 5) == here
    netns.sh("ip link set eth0 down", net.peer)
    assert await net.rounds(one, 3) == here
    found = await net.rounds(one, 1)
    assert (found and found.answers) is False
    netns.sh("ip link set eth0 up", net.peer)
    async with asyncio.timeout(5):
        while await net.rounds(one, 1) != here:
            pass
    net.drops(ALL[version])
    found = await net.rounds(one, 4)
    assert (found and found.answers) is False
    net.drops()
    netns.sh("ip link set eth0 down")
    found = await net.rounds(asked(version, owner=False), 1)
    assert (found and found.answers) is False


async def test_too_many_open_files_do_not_make_a_network_silent(netns: Namespaces) -> None:
    net = Net(netns)
    one = asked(4, owner=False)
    here = await net.rounds(one, 1)
    assert here
    assert here.answers
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        there = await net.rounds(one, 6)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert there == here
    assert 'error="EMFILE"' in failed_probe_metrics()


@VERSIONS
async def test_a_port_that_passes_the_nodes_own_addresses_alone_is_noticed(
    netns: Namespaces, version: int
) -> None:
    net = Net(netns)
    own(net, version)
    one = asked(version, owner=True)
    found = await net.rounds(one, 2)
    assert (found and (found.answers, found.unheard)) == (True, "")
    net.drops(MATCHES[version])
    found = await net.rounds(one, 2)
    assert (found and (found.answers, found.unheard)) == (True, "")
    found = await net.rounds(one, 1)
    assert (found and (found.answers, found.unheard)) == (True, IPS[version])


@VERSIONS
async def test_a_card_that_loses_its_address_with_its_cable_is_noticed(
    netns: Namespaces, version: int
) -> None:
    net = Net(netns)
    one = asked(version, owner=True)
    lost = one._replace(lost=True)
    assert await net.rounds(lost, 5) is None
    here = await net.rounds(one, 1)
    assert here
    assert net.feed._answered == [one.key]
    found = await net.rounds(lost, 3)
    assert (found and found.answers) is True
    assert await net.rounds(lost, 1) == AnsweringNetwork("eth0", NETWORKS[version], answers=False)
    assert await net.rounds(one, 1) == here


@VERSIONS
async def test_neighbours_that_never_answered_as_the_address_are_not_missed(
    netns: Namespaces, version: int
) -> None:
    net = Net(netns)
    own(net, version)
    net.drops(MATCHES[version])
    found = await net.rounds(asked(version, owner=True), 6)
    assert (found and (found.answers, found.unheard)) == (True, "")


@VERSIONS
async def test_neighbours_that_never_answered_at_all_are_not_missed(netns: Namespaces, version: int) -> None:
    net = Net(netns)
    net.drops(ALL[version])
    assert await net.rounds(asked(version, owner=True), 6) is None
    assert (
        await net.rounds(AskedNetwork("gone", NETWORKS[version], (PEERS[version],), (), silent=False), 3)
        is None
    )


@VERSIONS
async def test_only_the_neighbours_that_are_asked_learn_the_address_and_only_from_its_owner(
    netns: Namespaces, version: int
) -> None:
    net = Net(netns)
    bystander = netns.make()
    netns.sh(
        f"ip link add by type veth peer name eth0 netns {bystander}; ip link set by up master sw", net.switch
    )
    netns.sh(
        "sysctl -qw net.ipv6.conf.eth0.accept_dad=0; ip link set eth0 up; ip addr add 192.0.2.3/24 dev eth0",
        bystander,
    )
    stale = f"ip neigh replace {IPS[version]} lladdr {FORMER_MAC} dev eth0 nud reachable"
    for space in (net.router, net.peer, bystander):
        netns.sh(stale, space)
    own(net, version, "n2")  # it has moved since the round began
    await net.rounds(asked(version, owner=True), 2)
    assert [learnt(net, space, version) for space in (net.router, net.peer)] == [False, False]
    own(net, version)
    netns.sh("sysctl -qw net.ipv4.neigh.eth0.locktime=0", net.router)
    netns.sh("sysctl -qw net.ipv4.neigh.eth0.locktime=0", net.peer)
    async with asyncio.timeout(30):
        while not all(learnt(net, space, version) for space in (net.router, net.peer)):
            await net.rounds(asked(version, owner=True), 1)
    assert not learnt(net, bystander, version)


def learnt(net: Net, space: str, version: int) -> bool:
    """Whether that host takes the Node for the owner of the address."""
    shown = net.netns.sh(f"ip neigh show {IPS[version]} dev eth0", space)
    return shown.split("lladdr")[1].split()[0] != FORMER_MAC


async def test_of_many_addresses_all_have_their_turn(
    netns: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, seen = Net(netns), []

    async def answered(_dev: str, _ip: str, _mac: str, sender: str) -> bool:
        seen.append(sender)
        return True

    monkeypatch.setattr(network_feed, "_answers_as", answered)
    ips: tuple[str, ...] = tuple(f"192.0.2.{last}" for last in range(40, 80))
    for last, ip in enumerate(ips):
        net.facts.put(ExternalIPOwner(f"shop/{last}", ip, "p", "n1"))
    many: Any = AskedNetwork("eth0", NETWORKS[4], (PEERS[4],), ips, silent=False)
    await net.rounds(many, 1)
    assert len(set(seen)) == network_feed.MAX_IPS
    await net.rounds(many, 2)
    assert set(seen) == set(ips)
