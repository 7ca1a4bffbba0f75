"""What the host gets: gateway, forwarding, source translation, and the card that userspace OVS owns."""

import msgspec
import pytest

from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.node import PeerNode, ThisNode, Transport
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.node_network.agent import FEATURE
from antrea.features.node_route.agent import FEATURE as NODE_ROUTE
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.host.address import Address
from antrea.host.link import Link
from antrea.host.nft import NftElement, NftRule, NftShield
from antrea.host.ovs_port import Port
from antrea.host.route import Neighbour, Route
from antrea.host.sysctl import Sysctl
from antrea.host.tunnel_neighbour import TunnelNeighbour, next_hop
from antrea.rank import Rank

NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/80"), ("192.0.2.1",), ("198.51.100.1",), 1400)
PEER = PeerNode("n2", ("10.10.1.0/24", "fd00:10:1::/80"), ("192.0.2.2",), ("198.51.100.2",))
GATEWAY = OvsPort("antrea-gw0", "gateway", 32769, "0a:00:00:00:00:01")
CARD = Transport("eth1", "br-phy", "0a:00:00:00:00:02", 1500, ("198.51.100.1/24",), (("", "198.51.100.254"),))
NO_ENCAP = AgentConfig(traffic_encap_mode="noEncap")
POD = PodInterface("web-1a2b3c", "c1", "shop", "web", "0a:00:00:00:00:07", ("10.10.0.7",), 7, "uuid-1")


def wanted(
    config: AgentConfig,
    *kinds: type,
    card: Transport = CARD,
    node: ThisNode = NODE,
    peer: PeerNode = PEER,
) -> set[object]:
    """Everything of these kinds that the features want of one Node."""
    facts = Facts()
    for row in (config, node, peer, GATEWAY, card, POD):
        facts.put(row)
    engine = Engine(facts, (*FEATURE.units, *NODE_ROUTE.units, *POD_CONNECTIVITY.units))
    engine.plan()
    return {entry for entry in engine.standing().values() if isinstance(entry, kinds)}


def test_the_gateway_has_the_first_address_of_each_pod_cidr_and_the_host_forwards() -> None:
    assert wanted(AgentConfig(), Link, Address, Sysctl) == {
        Link("antrea-gw0", 1400),
        Link("br-phy", 1500),
        Link("eth1", 0),
        Address("antrea-gw0", "10.10.0.1/24"),
        Address("antrea-gw0", "fd00:10::1/80"),
        Address("br-phy", "198.51.100.1/24"),
        Sysctl("net/ipv4/ip_forward", "1"),
        Sysctl("net/ipv6/conf/all/forwarding", "1"),
        Sysctl("net/ipv4/conf/antrea-gw0/arp_announce", "1"),
    }


@pytest.mark.parametrize(
    ("config", "whole"),
    [
        (AgentConfig(), False),
        (AgentConfig(ovs_datapath_type="netdev"), True),
        (AgentConfig(disable_tx_checksum_offload=True), True),
    ],
    ids=["system", "netdev", "disableTXChecksumOffload"],
)
def test_the_gateway_leaves_no_checksum_to_the_userspace_datapath(config: AgentConfig, whole: bool) -> None:
    assert Link("antrea-gw0", 1400, whole_checksums=whole) in wanted(config, Link)


def test_routes_lead_to_peers_through_their_gateways_and_the_card_keeps_its_own() -> None:
    assert wanted(AgentConfig(), Route, Neighbour) == {
        Route(dst="0.0.0.0/0", dev="br-phy", via="198.51.100.254", rank=Rank.RECEIVES),
        Route(dst="10.10.1.0/24", dev="antrea-gw0", via="10.10.1.1", onlink=True),
        Route(dst="fd00:10:1::1/128", dev="antrea-gw0"),
        Route(dst="fd00:10:1::/80", dev="antrea-gw0", via="fd00:10:1::1", onlink=True),
        Neighbour(dev="antrea-gw0", ip="fd00:10:1::1", mac="aa:bb:cc:dd:ee:ff"),
    }


def test_without_tunnels_routes_lead_to_peers_on_the_same_network_and_no_other() -> None:
    def routes(*addresses: str) -> set[object]:
        card = msgspec.structs.replace(CARD, addresses=addresses, routes=())
        return wanted(NO_ENCAP, Route, Neighbour, TunnelNeighbour, card=card)

    dual = msgspec.structs.replace(PEER, transport_ips=("198.51.100.2", "fd00:1::2"))
    v4 = Route(dst="10.10.1.0/24", dev="br-phy", via="198.51.100.2")
    assert routes("198.51.100.1/24", "fd00:1::1/64") == {v4}
    assert routes("198.51.100.1/32") == set()
    card = msgspec.structs.replace(CARD, addresses=("198.51.100.1/32", "fd00:1::1/64"), routes=())
    v6 = Route(dst="fd00:10:1::/80", dev="br-phy", via="fd00:1::2")
    assert wanted(NO_ENCAP, Route, card=card, peer=dual) == {v6}


def test_in_mode_hybrid_a_peer_on_the_same_network_is_routed_to_and_others_are_behind_the_tunnel() -> None:
    hybrid = AgentConfig(traffic_encap_mode="hybrid")
    card = msgspec.structs.replace(CARD, routes=())
    by_tunnel = wanted(AgentConfig(), Route, Neighbour, card=card)
    v4, v6 = (Route(dst=cidr, dev="br-phy", via=PEER.transport_ips[0]) for cidr in PEER.pod_cidrs)
    assert wanted(hybrid, Route, Neighbour, card=card) == {v4} | {
        entry for entry in by_tunnel if "10.10.1.0/24" not in str(entry)
    }
    apart = msgspec.structs.replace(card, addresses=("198.51.100.1/32",))
    assert wanted(hybrid, Route, Neighbour, card=apart) == by_tunnel
    assert v6 not in by_tunnel
    # an Egress of the neighbor uses the tunnel
    assert wanted(hybrid, Port, TunnelNeighbour, card=card) == wanted(
        AgentConfig(), Port, TunnelNeighbour, card=card
    )


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (AgentConfig(), "udp dport 6081"),
        (AgentConfig(tunnel_type="vxlan"), "udp dport 4789"),
        (AgentConfig(tunnel_type="vxlan", tunnel_port=8472), "udp dport 8472"),
        (AgentConfig(tunnel_type="gre", tunnel_port=7), "meta l4proto gre"),
    ],
)
def test_the_kernel_does_not_track_packets_of_tunnels(config: AgentConfig, match: str) -> None:
    texts = {rule.text for rule in wanted(config, NftRule) if isinstance(rule, NftRule)}
    assert {text for text in texts if "notrack" in text} == {
        f"{match} fib {way} type local notrack" for way in ("saddr", "daddr")
    }
    [port] = wanted(config, Port)
    assert isinstance(port, Port)
    options = {"remote_ip": "flow", "key": "flow"} | ({"dst_port": "8472"} if "8472" in match else {})
    assert (port.type, dict(port.options)) == (config.tunnel_type, options)


def test_without_tunnels_there_is_no_port_and_no_exception_for_them() -> None:
    assert wanted(AgentConfig(), Port) != set()
    assert wanted(NO_ENCAP, Port) == set()
    rules = [rule for rule in wanted(NO_ENCAP, NftRule) if isinstance(rule, NftRule)]
    assert not [rule.name for rule in rules if rule.name.startswith("tunnel")]
    assert wanted(NO_ENCAP, NftElement) == wanted(AgentConfig(), NftElement)
    masquerades = [rule.name for rule in rules if rule.name.startswith("Pods to outside")]
    assert sorted(masquerades) == ["Pods to outside, ip", "Pods to outside, ip6"]


def test_pods_keep_their_address_on_the_way_out_where_the_network_knows_it() -> None:
    config = msgspec.structs.replace(NO_ENCAP, no_snat=True)
    rules = [rule for rule in wanted(config, NftRule) if isinstance(rule, NftRule)]
    assert not [rule.name for rule in rules if rule.name.startswith("Pods to outside")]


def test_a_node_without_ipv4_pods_has_no_routes_to_those_of_its_peers() -> None:
    node = msgspec.structs.replace(NODE, pod_cidrs=NODE.pod_cidrs[1:])
    routes = {r.dst for r in wanted(AgentConfig(), Route, node=node) if isinstance(r, Route)}
    assert routes == {"0.0.0.0/0", "fd00:10:1::1/128", "fd00:10:1::/80"}


def test_the_kernel_is_shielded_from_ports_only_while_ovs_runs_in_user_space() -> None:
    card = NftShield("eth1")
    assert wanted(AgentConfig(ovs_datapath_type="netdev"), NftShield) == {
        card,
        NftShield("web-1a2b3c", "uuid-1"),
    }
    assert wanted(AgentConfig(), NftShield) == {card}


def test_pods_leave_with_the_nodes_address_but_reach_pods_with_their_own() -> None:
    rules = {rule.name: rule.text for rule in wanted(AgentConfig(), NftRule) if isinstance(rule, NftRule)}
    assert rules["Pods to outside, ip"] == (
        'ip saddr 10.10.0.0/24 ip daddr != @antrea-pod-ip oifname != "antrea-gw0" masquerade'
    )
    assert rules["Pods to outside, ip6"] == (
        'ip6 saddr fd00:10::/80 ip6 daddr != @antrea-pod-ip6 oifname != "antrea-gw0" masquerade'
    )
    assert wanted(AgentConfig(), NftElement) == {
        NftElement(set=name, value=cidr)
        for node in (NODE, PEER)
        for name, cidr in zip(("antrea-pod-ip", "antrea-pod-ip6"), node.pod_cidrs, strict=True)
    }


def test_the_tunnels_port_is_not_tracked_whatever_its_number() -> None:
    rules = wanted(AgentConfig(tunnel_port=7000), NftRule)
    assert {rule.text for rule in rules if isinstance(rule, NftRule) and rule.chain == "prerouting-raw"} == {
        "udp dport 7000 fib daddr type local notrack"
    }


def test_the_neighbour_of_a_tunnel_is_the_peer_on_the_link_and_else_the_closest_router() -> None:
    link = msgspec.structs.replace(
        CARD,
        addresses=("198.51.100.1/24", "fd00:1::1/64"),
        routes=(("", "198.51.100.254"), ("192.0.2.0/25", "198.51.100.7"), ("fd00:2::/64", "fe80::1")),
    )
    ends = ("198.51.100.2", "192.0.2.2", "192.0.2.200", "fd00:1::2", "fd00:2::2", "fd00:3::2")
    assert [next_hop(link, end) for end in ends] == [
        "198.51.100.2",
        "198.51.100.7",
        "198.51.100.254",
        "fd00:1::2",
        "fe80::1",
        None,
    ]


def test_ovs_has_to_know_the_neighbours_of_its_tunnels_only_where_it_sends_them_itself() -> None:
    assert wanted(AgentConfig(), TunnelNeighbour) == {TunnelNeighbour("br-phy", "198.51.100.2")}
    kernel = msgspec.structs.replace(CARD, device=CARD.interface)
    assert wanted(AgentConfig(), TunnelNeighbour, card=kernel) == set()
