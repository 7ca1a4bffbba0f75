"""NodePorts with direct server return: the Endpoint on another Node answers the client itself, from the address that it asked.

The host hands such a packet to the switch with one virtual address as its destination, and does not track it, as it sees no answer.
Before it is passed on the packet gets the Node's own address back: the Node of the Endpoint translates from that, and its answers
have it again. What an Endpoint of this Node answers gets it from the host. Beyond upstream, which has no such mode for NodePorts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine import Unit
from antrea.facts.family import is_ipv6
from antrea.facts.node import LocalAddress, PeerNode, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import ServicePort
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.node_route.way import shared_cidrs
from antrea.features.proxy.direct_path import GATE, from_peer, is_possible, passed_way
from antrea.features.proxy.dsr import DIRECT_IPS, chosen_within
from antrea.features.proxy.host import marked, proxies_all, serves_node_ports, service_route
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet
from antrea.host.sysctl import Sysctl
from antrea.openflow.action import DROP, set_dst
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    DSR_SERVICE_REG_MARK,
    FROM_TUNNEL_REG_MARK,
    TO_NODE_PORT_ADDRESS_REG_MARK,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import PROTOCOLS, dst, src
from antrea.openflow.priority import Priority
from antrea.openflow.tables import L3_FORWARDING, NODE_PORT_MARK
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.config.agent import AgentConfig
    from antrea.engine import Facts
    from antrea.host.route import Route

NODE_PORTS = ("direct-node-port", "direct-node-port6")
PEERS = ("peer-node-ip", "peer-node-ip6")
"""Names of sets, in IPv4 and IPv6."""
CHAIN = "postrouting-direct"
HOOK = "type filter hook postrouting priority mangle; policy accept;"
flow = flows_of(Category.SERVICE)


def direct_node_ip(facts: Facts, node: ThisNode, *, ipv6: bool) -> str:
    """Return the Node's own address, if NodePorts are served there in this mode; at its other addresses they are translated."""
    config = proxies_all(facts)
    node_ip = next((ip for ip in node.node_ips if is_ipv6(ip) == ipv6), "")
    address = facts.get(LocalAddress, node_ip) if node_ip else None
    possible = config is not None and address is not None and is_possible(facts)
    return node_ip if possible and config and address and serves_node_ports(config, address) else ""


def has_direct(port: ServicePort) -> bool:
    """Whether its NodePort is served in this mode."""
    return port.direct and bool(port.node_port) and port.protocol in PROTOCOLS


# units


def direct_host_entries(
    facts: Facts, node: ThisNode
) -> Iterator[NftChain | NftSet | NftRule | Sysctl | Route]:
    """Yield the path to the switch and back, whatever Services there are."""
    config = proxies_all(facts)
    if config is None or facts.get(OvsPort, config.host_gateway) is None or not is_possible(facts):
        return
    yield NftChain(name=CHAIN, hook=HOOK)
    # answers with another Node's address come from the switch
    yield Sysctl(f"net/ipv4/conf/{config.host_gateway}/rp_filter", "2")
    for ipv6 in sorted(node.families):
        yield NftSet(name=NODE_PORTS[ipv6], type="inet_proto . inet_service")
        yield NftSet(name=PEERS[ipv6], type="ipv6_addr" if ipv6 else "ipv4_addr")
        yield service_route(config, DIRECT_IPS[ipv6])
        if node_ip := direct_node_ip(facts, node, ipv6=ipv6):
            yield from rules(config, node_ip, ipv6=ipv6)


def rules(config: AgentConfig, node_ip: str, *, ipv6: bool) -> Iterator[NftRule]:
    """Yield rules by which the destination becomes the virtual address, and that as a source becomes the Node's own; neither is
    tracked.
    """
    ip, virtual, gateway = "ip6" if ipv6 else "ip", DIRECT_IPS[ipv6], f'"{config.host_gateway}"'
    number = f"meta l4proto . th {{}} @{NODE_PORTS[ipv6]}"
    comes = (
        f"iifname != {gateway} {ip} daddr {node_ip} {number.format('dport')} {ip} daddr set {virtual} notrack"
    )
    returns = f"iifname {gateway} {ip} saddr {virtual} notrack"
    of_peers = f"iifname {gateway} {ip} saddr @{PEERS[ipv6]} {number.format('sport')} notrack"
    for name, text in (("to", comes), ("from", returns), ("of other Nodes from", of_peers)):
        yield NftRule(chain="prerouting-raw", name=f"{name} direct NodePorts, {ip}", text=text)
    yield NftRule(
        chain=CHAIN,
        name=f"from direct NodePorts, {ip}",
        text=f"{ip} saddr {virtual} {ip} saddr set {node_ip}",
    )


def direct_node_port(facts: Facts, port: ServicePort) -> Iterator[NftElement]:
    """Yield a port whose packets get the virtual address."""
    node = facts.get(ThisNode)
    if node is not None and has_direct(port) and proxies_all(facts) is not None:
        for ipv6 in sorted(node.families & port.families):
            value = f"{port.protocol.lower()} . {port.node_port}"
            yield NftElement(set=NODE_PORTS[ipv6], value=value, rank=Rank.SENDS)


def direct_address_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Yield flows that mark packets to the virtual address as for a NodePort."""
    if proxies_all(facts) is not None and is_possible(facts):
        for ipv6 in sorted(node.families):
            yield marked(DIRECT_IPS[ipv6])


def peer_entries(facts: Facts, peer: PeerNode) -> Iterator[NftElement | Flow]:
    """Yield entries for NodePort packets that another Node passes on with its address, and that this Node passes on to it."""
    config, node = proxies_all(facts), facts.get(ThisNode)
    if config is None or node is None or not is_possible(facts):
        return
    for ip in peer.node_ips:
        if is_ipv6(ip) in node.families:
            mark = [TO_NODE_PORT_ADDRESS_REG_MARK.load]
            yield NftElement(set=PEERS[is_ipv6(ip)], value=ip)
            yield flow(NODE_PORT_MARK, Priority.NORMAL, from_peer(facts), dst(ip), then=mark)
    for cidr in shared_cidrs(node, peer) if config.has_tunnel else ():
        # on its way to its Egress Node; a table that is resubmitted to drops nothing
        yield flow(NODE_PORT_MARK, Priority.HIGH, FROM_TUNNEL_REG_MARK.match, src(cidr), then=DROP)
    for cidr in shared_cidrs(node, peer):
        way, node_ip = (
            passed_way(facts, peer, ipv6=is_ipv6(cidr)),
            direct_node_ip(facts, node, ipv6=is_ipv6(cidr)),
        )
        if way and node_ip:
            match = (DSR_SERVICE_REG_MARK.match, dst(DIRECT_IPS[is_ipv6(cidr)]), chosen_within(cidr))
            yield flow(L3_FORWARDING, Priority.HIGH, *match, then=[set_dst(node_ip), *way])


FEATURE = AgentFeature(
    name="LoadBalancerModeDSR of NodePorts",
    gate=GATE,
    within="AntreaProxy",
    units=(
        Unit(ThisNode, direct_host_entries),
        Unit(ThisNode, direct_address_flows),
        Unit(ServicePort, direct_node_port),
        Unit(PeerNode, peer_entries),
    ),
    category=Category.SERVICE,
)
