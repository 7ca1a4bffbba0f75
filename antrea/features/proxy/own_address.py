"""External addresses of Services that are this Node's own: the host translates their ports to the switch, as it does NodePorts.

A route cannot lead them there, as the kernel takes packets to its own addresses itself. So the Node that has the address serves them,
port by port, to its Pods, to itself and to others; other Nodes send packets to it. A port that the Node needs stays its own.
kube-proxy serves every port of such an address, those of kubelet and kube-apiserver, too; upstream none from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import ListeningPorts, Service, ServiceEndpoint, ServicePort
from antrea.features.proxy.external_address import ExternalIPConflict, conflict, node_with, whose_but_nodes
from antrea.features.proxy.host import CHAINS, OURS, proxies_all, service_route
from antrea.host.nft import NftElement, NftRule, NftSet
from antrea.openflow.match import PROTOCOLS
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts
    from antrea.host.route import Route

OWN_IPS = ("169.254.0.248", "fc01::aabb:ccdd:eefa")
"""Destination between host and switch of packets to external addresses that are the Node's own, in IPv4 and IPv6."""
OWN_EXTERNAL_IPS = ("own-external-ip", "own-external-ip6")
"""Names of maps from address, protocol and port to these."""
NUMBERS = "own external IP"
"""Pool of the ports of OWN_IPS: each address and port of a Service has one."""
API_SERVER = "default/kubernetes:https/TCP"
"""Key of the port whose Endpoints are kube-apiserver's addresses and ports."""
NEEDED = {
    ("TCP", 22): "SSH",
    ("TCP", 179): "BGP",
    ("TCP", 2379): "etcd",
    ("TCP", 2380): "etcd",
    ("TCP", 6443): "kube-apiserver",
    ("TCP", 10248): "kubelet",
    ("TCP", 10249): "kube-proxy",
    ("TCP", 10250): "kubelet",
    ("TCP", 10255): "kubelet",
    ("TCP", 10256): "health checks of Services",
    ("TCP", 10257): "kube-controller-manager",
    ("TCP", 10259): "kube-scheduler",
    ("TCP", 10349): "antrea-controller",
    ("UDP", 68): "DHCP",
    ("UDP", 546): "DHCP",
    ("UDP", 500): "IPsec",
    ("UDP", 4500): "IPsec",
    ("UDP", 3784): "BFD",
    ("UDP", 4784): "BFD",
    ("UDP", 4789): "tunnels between Nodes",
    ("UDP", 6081): "tunnels between Nodes",
    ("UDP", 7471): "tunnels between Nodes",
    ("UDP", 51820): "WireGuard",
}
"""Ports that no Service gets, also while nothing listens there: a program that restarts must find its connections."""


def local_address_of(facts: Facts, ip: str) -> LocalAddress | None:
    """Return the address of this Node that an external address is, if its ports are served one by one."""
    config, address = proxies_all(facts), facts.get(LocalAddress, ip)
    if config is None or address is None or not config.antrea_proxy.serve_node_external_ips:
        return None
    if address.dev.startswith((config.host_gateway, *OURS)) or whose_but_nodes(facts, ip):
        return None
    return address


def served_ports(
    facts: Facts, service: Service, ips: Iterable[str], protocol: str, port: int
) -> Iterator[str]:
    """Yield those of a Service's external addresses at which this Node serves one of its ports as its own.

    None before it is known what listens on the Node.
    """
    for ip in ips:
        is_known = local_address_of(facts, ip) and facts.get(ListeningPorts, ListeningPorts.KEY)
        if is_known and not needed_for(facts, service, ip, protocol, port):
            yield ip


def needed_for(facts: Facts, service: Service, ip: str, protocol: str, port: int) -> str:
    """Return what the Node needs a port of its address for; empty if nothing."""
    config, listening = facts.need(AgentConfig), facts.get(ListeningPorts, ListeningPorts.KEY)
    if purpose := needed_ports(config).get((protocol, port)):
        return purpose
    servers = facts.by(ServiceEndpoint, "behind", API_SERVER)
    if protocol == "TCP" and any((endpoint.ip, endpoint.port) == (ip, port) for endpoint in servers):
        return "kube-apiserver"
    for other in facts.by(Service, "node_port", port):
        pairs = zip(other.ports, other.node_ports, strict=False)
        if other.key != service.key and any((has, number) == (protocol, port) for (has, _), number in pairs):
            return f"the NodePort of Service {other.key}"
    if listening is not None and listening.takes(ip, protocol, port):
        return "a program of the Node, which listens there"
    return ""


def needed_ports(config: AgentConfig) -> dict[tuple[str, int], str]:
    """Return protocol and port of what a Node needs, and the purpose."""
    agent = "antrea-agent"
    return NEEDED | {
        ("TCP", config.api_port): agent,
        ("TCP", config.cluster_port): agent,
        ("UDP", config.cluster_port): agent,
        ("UDP", config.tunnel_port_number): "tunnels between Nodes",
    }


def own_port(facts: Facts, port: ServicePort, ip: str) -> int:
    """Return the port of OWN_IPS that stands for a port of one of the Node's addresses."""
    return facts.id(NUMBERS, f"{ip} {port.protocol} {port.port}")


# units


def own_address_tables(facts: Facts, node: ThisNode) -> Iterator[NftSet | NftRule | Route]:
    """Yield sets, rules and routes, whatever Services there are."""
    config = proxies_all(facts)
    if config is None or not config.antrea_proxy.serve_node_external_ips:
        return
    if facts.get(OvsPort, config.host_gateway) is None:
        return
    for ipv6 in sorted(node.families):
        ip, kind = ("ip6", "ipv6_addr") if ipv6 else ("ip", "ipv4_addr")
        name = OWN_EXTERNAL_IPS[ipv6]
        yield NftSet(name=name, type=f"{kind} . inet_proto . inet_service", data=f"{kind} . inet_service")
        text = f"dnat {ip} to {ip} daddr . meta l4proto . th dport map @{name}"
        for chain in CHAINS:
            yield NftRule(chain=chain, name=f"own external IPs, {ip}", text=text)
        yield service_route(config, OWN_IPS[ipv6])


def own_address_elements(facts: Facts, port: ServicePort) -> Iterator[NftElement]:
    """Yield the path of one port of each address into the switch."""
    node = facts.get(ThisNode)
    if node is None or port.protocol not in PROTOCOLS:
        return
    for ip in port.own_ips:
        if (ipv6 := is_ipv6(ip)) in node.families:
            yield NftElement(
                set=OWN_EXTERNAL_IPS[ipv6],
                value=f"{ip} . {port.protocol.lower()} . {port.port}",
                data=f"{OWN_IPS[ipv6]} . {own_port(facts, port, ip)}",
                rank=Rank.SENDS,
            )


def needed_addresses(facts: Facts, service: Service) -> Iterator[ExternalIPConflict]:
    """Yield what is not served at an address, by the agent of the Node that has it."""
    config, node = proxies_all(facts), facts.get(ThisNode)
    if config is None or node is None or not config.antrea_proxy.serve_node_external_ips:
        return
    if not any(facts.get(LocalAddress, ip) for ip in node.node_ips):
        return  # the Node's addresses are not known yet
    for ip in service.external_ips:
        if local_address_of(facts, ip):
            for protocol, port in service.ports:
                if purpose := needed_for(facts, service, ip, protocol, port):
                    place = f"{ip}, port {port}/{protocol}"
                    yield conflict(
                        service,
                        f"{place} of Node {node.name} is for {purpose}: the Service is not served there",
                    )
        elif facts.get(LocalAddress, ip) is None and node_with(facts, ip) == node.name:
            why = f"{ip} is an address of Node {node.name}, and none of its interfaces has it"
            yield conflict(service, f"{why}: it is not served as an external IP")
