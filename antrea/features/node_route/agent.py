"""Packets to the Pods of another Node: through the tunnel in OVS, by way of antrea-gw0 from the host.

Without tunnels OVS gives them to the host, which routes them to the Node as they are. In mode hybrid this is so for Nodes on the
network of the transport interface.

parity: pkg/agent/openflow/pod_connectivity.go installNodeFlows, pkg/agent/controller/noderoute
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.annotation import LINK, TRANSPORT_ADDRESSES, NodeAnnotation
from antrea.config.agent import AgentConfig
from antrea.engine import Facts, Unit
from antrea.facts.family import is_ipv6
from antrea.facts.member import AgentNode
from antrea.facts.node import PeerNode, ThisNode, Transport
from antrea.facts.ovs import OvsPort
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.framework.gate import EnabledGates
from antrea.features.node_route.way import direct_hop, needs_tunnel, shared_cidrs, tunnel_end
from antrea.host.carrier import RELAYED_MACS
from antrea.host.pod_cidr import gateway_ip
from antrea.host.route import Neighbour, Route
from antrea.host.tunnel_neighbour import TunnelNeighbour, next_hop
from antrea.openflow.action import (
    ARP_SHA,
    ARP_SPA,
    ARP_THA,
    ARP_TPA,
    ETH_DST,
    ETH_SRC,
    IN_PORT,
    goto,
    move,
    set_arp_op,
    set_arp_sha,
    set_arp_spa,
    set_eth_dst,
    set_eth_src,
    set_tun_dst,
)
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    GLOBAL_VIRTUAL_MAC,
    OUTPUT_TO_OF_PORT_REG_MARK,
    TARGET_OF_PORT,
    TO_GATEWAY_REG_MARK,
    TO_TUNNEL_REG_MARK,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import ARP_REPLY, ARP_REQUEST, arp, arp_op, arp_tpa, dst
from antrea.openflow.priority import Priority
from antrea.openflow.tables import ARP_RESPONDER, L3_DEC_TTL, L3_FORWARDING, OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.openflow.field import Action

flow = flows_of(Category.POD_CONNECTIVITY)
DIRECT_SERVER_RETURN = "LoadBalancerModeDSR"
"""Feature gate of load balancer mode dsr."""


def peer_node(facts: Facts, node: AgentNode) -> Iterator[PeerNode]:
    """Yield the row of every Node but this one."""
    this = facts.get(ThisNode)
    if this is not None and node.name != this.name:
        yield PeerNode(node.name, node.pod_cidrs, node.ips, node.transport_ips, node.mac)


def peer_flows(facts: Facts, peer: PeerNode) -> Iterator[Flow]:
    """Yield the route to one Node, and the ARP responder for its gateway's address."""
    config, node = facts.need(AgentConfig), facts.need(ThisNode)
    gateway, end = facts.need(OvsPort, config.host_gateway), tunnel_end(node, peer)
    if config.has_tunnel and end is None:
        return
    for cidr in shared_cidrs(node, peer):
        by_tunnel = needs_tunnel(facts, peer, ipv6=is_ipv6(cidr))
        way = tunnel_way(gateway, end) if by_tunnel and end else host_way(gateway)
        if not is_ipv6(cidr):
            yield arp_responder(gateway_ip(cidr))
        yield flow(L3_FORWARDING, Priority.NORMAL, dst(cidr), then=way)


def host_way(gateway: OvsPort) -> list[Action]:
    """Actions for packets that the host routes.

    parity: pkg/agent/openflow/pipeline.go l3FwdFlowToRemoteViaGW
    """
    return [set_eth_dst(gateway.mac), TO_GATEWAY_REG_MARK.load, goto(L3_DEC_TTL)]


def tunnel_way(gateway: OvsPort, end: str) -> list[Action]:
    """Actions for packets routed through the tunnel that ends at `end`."""
    return [
        set_eth_src(gateway.mac),
        set_eth_dst(GLOBAL_VIRTUAL_MAC),
        set_tun_dst(end),
        TO_TUNNEL_REG_MARK.load,
        goto(L3_DEC_TTL),
    ]


def relay_way(tunnel: OvsPort, end: str, mac: str = RELAYED_MACS[0]) -> list[Action]:
    """Actions for unrouted packets through the tunnel that ends at `end`, with `mac` as the mark of a relayed packet."""
    return [
        set_eth_src(mac),
        set_eth_dst(GLOBAL_VIRTUAL_MAC),
        set_tun_dst(end),
        TARGET_OF_PORT(tunnel.ofport).load,
        OUTPUT_TO_OF_PORT_REG_MARK.load,
        goto(OUTPUT),
    ]


def arp_responder(address: str) -> Flow:
    """Answer ARP for a peer's gateway with the one MAC address that stands for all of them."""
    return flow(
        ARP_RESPONDER,
        Priority.NORMAL,
        arp,
        arp_tpa(address),
        arp_op(ARP_REQUEST),
        then=[
            move(ETH_SRC, ETH_DST),
            set_eth_src(GLOBAL_VIRTUAL_MAC),
            set_arp_op(ARP_REPLY),
            move(ARP_SHA, ARP_THA),
            set_arp_sha(GLOBAL_VIRTUAL_MAC),
            move(ARP_SPA, ARP_TPA),
            set_arp_spa(address),
            IN_PORT,
        ],
    )


def peer_routes(facts: Facts, peer: PeerNode) -> Iterator[Route | Neighbour]:
    """Yield the host's route to the Pods of one Node: via its gateway over antrea-gw0, or without tunnels via the Node itself.

    The pipeline has no responder for IPv6, so the agent writes the gateway's neighbor entry.
    parity: pkg/agent/route/route_linux.go AddRoutes
    """
    config, node = facts.need(AgentConfig), facts.need(ThisNode)
    facts.need(OvsPort, config.host_gateway)
    for cidr in shared_cidrs(node, peer):
        if not needs_tunnel(facts, peer, ipv6=is_ipv6(cidr)):
            yield from direct_route(facts.need(Transport), peer, cidr)
            continue
        gateway = gateway_ip(cidr)
        if is_ipv6(cidr):
            yield Route(dst=f"{gateway}/128", dev=config.host_gateway)
            yield Neighbour(dev=config.host_gateway, ip=gateway, mac=GLOBAL_VIRTUAL_MAC)
        yield Route(dst=cidr, dev=config.host_gateway, via=gateway, onlink=True)


def direct_route(link: Transport, peer: PeerNode, cidr: str) -> Iterator[Route]:
    """Yield the route to a Node on the same network; routers between other Nodes have to know Pod CIDRs."""
    if hop := direct_hop(link, peer, ipv6=is_ipv6(cidr)):
        yield Route(dst=cidr, dev=link.device, via=hop)


def tunnel_neighbour(facts: Facts, peer: PeerNode) -> Iterator[TunnelNeighbour]:
    """Yield the next hop of tunnels for userspace OVS, so that the first packet from br-phy to it is not lost."""
    node, link = facts.need(ThisNode), facts.need(Transport)
    if link.device == link.interface or not facts.need(AgentConfig).has_tunnel:
        return
    end = tunnel_end(node, peer)
    if end and (hop := next_hop(link, end)):
        yield TunnelNeighbour(link.device, hop)


def transport_annotation(_facts: Facts, node: ThisNode) -> Iterator[NodeAnnotation]:
    """Publish to the other Nodes where tunnels end, when that is not at the Node's own address.

    parity: pkg/agent/agent.go setNodeTransportAddresses
    """
    other = node.transport_ips != node.node_ips
    yield NodeAnnotation(node.name, TRANSPORT_ADDRESSES, ",".join(node.transport_ips) if other else "")


def link_annotation(facts: Facts, link: Transport) -> Iterator[NodeAnnotation]:
    """Publish the networks of the transport interface, and the MAC address by which other Nodes recognize packets of this one.

    Without tunnels direct server return needs it. In mode hybrid antctl reads from it which Nodes exchange packets without a tunnel.
    """
    config, node, gates = facts.get(AgentConfig), facts.get(ThisNode), facts.get(EnabledGates)
    if config is None or node is None:
        return
    direct = not config.has_tunnel and gates is not None and DIRECT_SERVER_RETURN in gates
    text = " ".join((link.mac, *link.addresses))
    yield NodeAnnotation(node.name, LINK, text if direct or config.traffic_encap_mode == "hybrid" else "")


FEATURE = AgentFeature(
    name="NodeRoute",
    units=(
        Unit(AgentNode, peer_node, yields=(PeerNode,)),
        Unit(PeerNode, peer_flows),
        Unit(PeerNode, peer_routes),
        Unit(PeerNode, tunnel_neighbour),
        Unit(ThisNode, transport_annotation),
        Unit(Transport, link_annotation),
    ),
)
FEATURES = (FEATURE,)
