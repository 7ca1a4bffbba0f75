"""Host entries of proxyAll: what the Node sends to a Service, or gets for one, goes through antrea-gw0 into the switch.

Routes lead ClusterIPs and external addresses there; NodePorts are translated to one virtual address first. Upstream routes the
smallest network with all ClusterIPs: that may have addresses of others, and has those that are left to another proxy.
parity: pkg/agent/route/route_linux.go nftablesProxyAll, addVirtualServiceIPRoute, addVirtualNodePortDNATIPRoute
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import EarlierConnection
from antrea.features.framework.ip_range import unusable_network
from antrea.features.proxy.pipeline import VIRTUAL_IPS
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet
from antrea.host.route import Neighbour, Route
from antrea.openflow.cookie import Category
from antrea.openflow.fields import GLOBAL_VIRTUAL_MAC, TO_NODE_PORT_ADDRESS_REG_MARK
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import PROTOCOLS, dst
from antrea.openflow.priority import Priority
from antrea.openflow.tables import NODE_PORT_MARK
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.service import ServicePort

NODE_PORT_IPS = ("169.254.0.252", "fc01::aabb:ccdd:eefe")
"""Destination of packets to NodePorts between host and switch, in IPv4 and IPv6.

parity: pkg/agent/config/service_config.go VirtualNodePortDNATIPv4, VirtualNodePortDNATIPv6
"""
NODE_PORT_ADDRESSES = ("node-port-ip", "node-port-ip6")
NODE_PORTS = ("node-port", "node-port6")
EXTERNAL_IPS = ("external-ip", "external-ip6")
EARLIER = ("earlier-connection", "earlier-connection6")
"""Names of sets, in IPv4 and IPv6, with connections that continue with the proxy they began with."""
CHAINS = {
    "prerouting-nat": "type nat hook prerouting priority dstnat - 1; policy accept;",
    "output-nat": "type nat hook output priority -101; policy accept;",
}
"""Priorities before those of kube-proxy; hook output has no name for dstnat, which is -100."""
OURS = ("antrea-egress0", "antrea-ingress0", "antrea-ext.", "antrea-earlier0", "kube-ipvs0")
"""Prefixes of names of interfaces at whose addresses no NodePort is served."""
flow = flows_of(Category.SERVICE)


def proxies_all(facts: Facts) -> AgentConfig | None:
    """The configuration, if it asks for proxyAll."""
    config = facts.get(AgentConfig)
    return config if config is not None and config.antrea_proxy.proxy_all else None


# units


def host_entries(facts: Facts, node: ThisNode) -> Iterator[NftChain | NftSet | NftRule | Route | Neighbour]:
    """Yield chains, sets, and the path to the virtual addresses, whatever Services there are."""
    config = proxies_all(facts)
    if config is None or facts.get(OvsPort, config.host_gateway) is None:
        return
    for name, hook in CHAINS.items():
        yield NftChain(name=name, hook=hook)
    for ipv6 in sorted(node.families):
        yield from family_sets(ipv6=ipv6)
        yield from family_rules(config, ipv6=ipv6, earlier=bool(facts.by(EarlierConnection, "ipv6", ipv6)))
        yield from virtual_routes(facts, node, config, ipv6=ipv6)


def virtual_routes(
    facts: Facts, node: ThisNode, config: AgentConfig, *, ipv6: bool
) -> Iterator[Route | Neighbour]:
    """To the source of what the switch sends back to the Node, and to the address of NodePorts.

    A program of the Node that listens at all addresses answers from the Node's, to which the switch sent the packet.
    """
    service, dev = VIRTUAL_IPS[ipv6], config.host_gateway
    node_ip = next((ip for ip in node.node_ips if is_ipv6(ip) == ipv6 and facts.get(LocalAddress, ip)), "")
    yield Route(
        dst=host_network(service),
        dev=dev,
        src=node_ip,
        scope="global" if ipv6 else "link",
        rank=Rank.RECEIVES,
    )
    yield Neighbour(dev=dev, ip=service, mac=GLOBAL_VIRTUAL_MAC, rank=Rank.RECEIVES)
    yield service_route(config, NODE_PORT_IPS[ipv6])


def family_sets(*, ipv6: bool) -> Iterator[NftSet]:
    """Addresses and ports of NodePorts, and external addresses."""
    kind = "ipv6_addr" if ipv6 else "ipv4_addr"
    yield NftSet(name=NODE_PORT_ADDRESSES[ipv6], type=kind)
    yield NftSet(name=NODE_PORTS[ipv6], type="inet_proto . inet_service")
    yield NftSet(name=EXTERNAL_IPS[ipv6], type=kind)


def family_rules(config: AgentConfig, *, ipv6: bool, earlier: bool) -> Iterator[NftRule]:
    """NodePorts become one address; the switch alone tracks external addresses; its own source does not leave the Node.

    An external address that is one of the Node's, as kube-proxy of mode ipvs has it, leads to the Node itself: there IPVS serves it, by
    the host's connection tracking. `earlier`: the host still translates connections that began before.
    """
    ip = "ip6" if ipv6 else "ip"
    match = f"{ip} daddr @{NODE_PORT_ADDRESSES[ipv6]} meta l4proto . th dport @{NODE_PORTS[ipv6]}"
    for chain in CHAINS:
        text = f"{match} dnat {ip} to {NODE_PORT_IPS[ipv6]}"
        yield NftRule(chain=chain, name=f"NodePorts, {ip}", text=text)
    for chain, way in (("prerouting-raw", "daddr"), ("prerouting-raw", "saddr"), ("output-raw", "daddr")):
        name = f"{'to' if way == 'daddr' else 'from'} external IPs, {ip}"
        but = " fib daddr type != local" if way == "daddr" else ""
        if but and earlier:
            but += f" {connection_ends(ipv6=ipv6)} != @{EARLIER[ipv6]}"
        text = f"{ip} {way} @{EXTERNAL_IPS[ipv6]}{but} notrack"
        yield NftRule(chain=chain, name=name, text=text)
    random = " fully-random" if config.snat_fully_random_ports else ""
    yield NftRule(
        chain="postrouting",
        name=f"Services to outside, {ip}",
        text=f"{ip} saddr {VIRTUAL_IPS[ipv6]} masquerade{random}",
    )


def connection_ends(*, ipv6: bool, back: bool = False) -> str:
    """Protocol, source and destination of a connection, of its packets in one direction or `back`."""
    ip, ends = "ip6" if ipv6 else "ip", [("saddr", "sport"), ("daddr", "dport")]
    parts = [f"{ip} {address} . th {port}" for address, port in (reversed(ends) if back else ends)]
    return " . ".join(("meta l4proto", *parts))


def node_port_address(facts: Facts, address: LocalAddress) -> Iterator[NftElement | Flow]:
    """Yield an address of the Node at which NodePorts are served; Pods of this Node use it in the switch."""
    config, node = proxies_all(facts), facts.get(ThisNode)
    if config is None or node is None or is_ipv6(address.ip) not in node.families:
        return
    if not serves_node_ports(config, address):
        return
    name = NODE_PORT_ADDRESSES[is_ipv6(address.ip)]
    yield NftElement(set=name, value=address.ip, rank=Rank.SENDS)
    yield marked(address.ip)


def virtual_address_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Yield flows for packets that the host has translated."""
    if proxies_all(facts) is not None:
        for ipv6 in sorted(node.families):
            yield marked(NODE_PORT_IPS[ipv6])


def node_port_element(facts: Facts, port: ServicePort) -> Iterator[NftElement]:
    """Yield a port that the host translates to the virtual address, in the families that the Service has Endpoints of."""
    node = facts.get(ThisNode)
    if proxies_all(facts) is None or node is None or not port.node_port or port.protocol not in PROTOCOLS:
        return
    for ipv6 in sorted(node.families & port.families):
        value = f"{port.protocol.lower()} . {port.node_port}"
        yield NftElement(set=NODE_PORTS[ipv6], value=value, rank=Rank.SENDS)


def service_routes(facts: Facts, port: ServicePort) -> Iterator[Route | NftElement]:
    """Yield the path to each of its addresses; all ports of a Service have the same."""
    config, node = proxies_all(facts), facts.get(ThisNode)
    if config is None or node is None or facts.get(OvsPort, config.host_gateway) is None:
        return
    for ip in (*port.cluster_ips, *port.external_ips):
        if is_ipv6(ip) in node.families:
            yield service_route(config, ip)
    for ip in port.external_ips:
        if is_ipv6(ip) in node.families:
            yield NftElement(set=EXTERNAL_IPS[is_ipv6(ip)], value=ip, rank=Rank.SENDS)


def service_route(config: AgentConfig, ip: str) -> Route:
    """Return the route through the gateway to the switch for an address."""
    via = VIRTUAL_IPS[is_ipv6(ip)]
    return Route(dst=host_network(ip), dev=config.host_gateway, via=via, onlink=True)


def host_network(ip: str) -> str:
    """The network of one address."""
    return f"{ip}/{128 if is_ipv6(ip) else 32}"


def serves_node_ports(config: AgentConfig, address: LocalAddress) -> bool:
    """Whether NodePorts are served at an address of the Node."""
    wanted = config.antrea_proxy.node_port_addresses
    if address.dev.startswith((config.host_gateway, *OURS)):
        return False
    return not wanted or any(ip_address(address.ip) in ip_network(cidr, strict=False) for cidr in wanted)


def refused_node_port_addresses(config: AgentConfig) -> list[str]:
    """Return a sentence for each network of the configuration in which no NodePort can be served."""
    networks = ((cidr, unusable_network(cidr)) for cidr in config.antrea_proxy.node_port_addresses)
    return [
        f"antreaProxy.nodePortAddresses: {cidr} has nothing but {kind}: no NodePort is served there"
        for cidr, kind in networks
        if kind
    ]


def marked(ip: str) -> Flow:
    """Make the flow that marks packets to this address as for NodePorts."""
    return flow(NODE_PORT_MARK, Priority.NORMAL, dst(ip), then=[TO_NODE_PORT_ADDRESS_REG_MARK.load])
