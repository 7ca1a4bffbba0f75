"""Path of packets that an Endpoint answers directly to the Node of that Endpoint, untranslated.

Through the tunnel; or, without tunnels, to a Node on the same network: the switch returns the packet to the host with a source
MAC that stands for this Node, and the host sends it there. There is no such path between Nodes with routers between them, nor
where nft refuses the host's rules for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Unit
from antrea.facts.family import is_ipv6
from antrea.facts.member import AgentNode
from antrea.facts.node import LocalLink, PeerNode, ThisNode, Transport
from antrea.facts.ovs import OvsPort
from antrea.features.framework.gate import EnabledGates
from antrea.features.node_route.agent import tunnel_way
from antrea.features.node_route.way import direct_hop, tunnel_end
from antrea.features.proxy.external_address import networks_of
from antrea.features.proxy.host import proxies_all
from antrea.host.carrier import hop_mac
from antrea.host.nft import NftHops
from antrea.host.pod_cidr import held
from antrea.openflow.action import goto, set_eth_dst, set_eth_src
from antrea.openflow.fields import FROM_TUNNEL_REG_MARK, TO_GATEWAY_REG_MARK
from antrea.openflow.match import dl_dst
from antrea.openflow.tables import L3_DEC_TTL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.service import ServiceEndpoint
    from antrea.openflow.field import Action, Match

GATE = "LoadBalancerModeDSR"
PASSED_MAC = "aa:bb:cc:dd:ee:fe"
"""Destination on antrea-gw0 of packets that another Node passed on, where there are no tunnels."""
HOPS = "direct hop"
"""Pool of the numbers of Nodes in source MACs, between this Node's switch and its host."""


def is_possible(facts: Facts) -> bool:
    """Whether Endpoints on other Nodes may answer directly at all."""
    gates = facts.get(EnabledGates)
    return gates is not None and GATE in gates


def from_peer(facts: Facts) -> Match:
    """Match packets that another Node passed on untranslated."""
    config = facts.get(AgentConfig)
    return FROM_TUNNEL_REG_MARK.match if config is None or config.has_tunnel else dl_dst(PASSED_MAC)


def neighbour(facts: Facts, peer: PeerNode, *, ipv6: bool) -> str:
    """Return the peer's address on a network of this Node's card, if each of the two has published its MAC; else empty."""
    node, link = facts.get(ThisNode), facts.get(Transport)
    agent_node = facts.get(AgentNode, node.name) if node else None
    if link is None or agent_node is None or not agent_node.mac or not peer.mac:
        return ""
    return direct_hop(link, peer, ipv6=ipv6)


def without_tunnel(facts: Facts) -> AgentConfig | None:
    """Return the configuration, if it has neither tunnels nor kube-proxy."""
    config = proxies_all(facts)
    return config if config is not None and not config.has_tunnel else None


def ipv4_hops(facts: Facts, node: ThisNode) -> Iterator[NftHops]:
    """Yield the hops from the switch to other Nodes over IPv4."""
    return _hops(facts, node, ipv6=False)


def ipv6_hops(facts: Facts, node: ThisNode) -> Iterator[NftHops]:
    """Yield the hops from the switch to other Nodes over IPv6."""
    return _hops(facts, node, ipv6=True)


HOP_UNITS = (Unit(ThisNode, ipv4_hops), Unit(ThisNode, ipv6_hops))
"""Separate units: nft may refuse one family alone, as a kernel has a module for each."""


def _hops(facts: Facts, node: ThisNode, *, ipv6: bool) -> Iterator[NftHops]:
    config, link = without_tunnel(facts), facts.get(Transport)
    if config is None or link is None or ipv6 not in node.families:
        return
    if facts.get(OvsPort, config.host_gateway) is None:
        return
    hops = (
        (hop_mac(facts.id(HOPS, peer.name)), hop)
        for peer in facts.all(PeerNode)
        if (hop := neighbour(facts, peer, ipv6=ipv6))
    )
    card = facts.get(LocalLink, link.device)
    yield NftHops(
        ipv6=ipv6,
        dev=config.host_gateway,
        out=link.device,
        instance=card.index if card else 0,
        hops=tuple(sorted(hops)),
    )


def refused(facts: Facts, *, ipv6: bool) -> str:
    """Return why nft refuses the rules that hand packets of a family to other Nodes; empty if it does not."""
    why = next((row.why for row in facts.refusals(HOP_UNITS[ipv6])), "")
    return why.rpartition(": ")[2]  # nft's own words, without the entry's name


def has_way(facts: Facts, peer: PeerNode, *, ipv6: bool) -> bool:
    """Whether packets of a family get to another Node untranslated."""
    config, node = facts.get(AgentConfig), facts.get(ThisNode)
    if config is None or node is None:
        return False
    if config.has_tunnel:
        return tunnel_end(node, peer) is not None
    return bool(neighbour(facts, peer, ipv6=ipv6)) and not refused(facts, ipv6=ipv6)


def passed_way(facts: Facts, peer: PeerNode, *, ipv6: bool) -> list[Action]:
    """Return actions that route packets to another Node, whatever the destination; empty if there is no such path."""
    config, node = facts.get(AgentConfig), facts.get(ThisNode)
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    if config is None or node is None or gateway is None or not has_way(facts, peer, ipv6=ipv6):
        return []
    if config.has_tunnel:
        end = tunnel_end(node, peer)
        return tunnel_way(gateway, end) if end else []
    mac = hop_mac(facts.id(HOPS, peer.name))
    return [set_eth_src(mac), set_eth_dst(gateway.mac), TO_GATEWAY_REG_MARK.load, goto(L3_DEC_TTL)]


def is_passed_on(facts: Facts, endpoint: ServiceEndpoint) -> bool:
    """Whether packets get to an Endpoint on another Node untranslated: it is a Pod there, by its address."""
    peer = facts.get(PeerNode, node_of(facts, endpoint))
    return peer is not None and has_way(facts, peer, ipv6=is_ipv6(endpoint.ip))


def node_of(facts: Facts, endpoint: ServiceEndpoint) -> str:
    """Return the Node with the Pod CIDR that has its address, whichever Node its slice names; empty if none."""
    named = facts.get(PeerNode, endpoint.node)
    if named is not None and held(endpoint.ip, named.pod_cidrs):
        return named.name
    nodes_by_network = (facts.by(AgentNode, "pod_cidr", cidr) for cidr in networks_of(endpoint.ip))
    return next((min(node.name for node in nodes) for nodes in nodes_by_network if nodes), "")
