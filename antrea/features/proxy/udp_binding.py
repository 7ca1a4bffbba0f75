"""Targets of UDP connections through Services: the agent removes those to Endpoints and Services that are gone.

parity: pkg/agent/proxy/proxier.go removeStaleServiceConntrackEntries, removeStaleConntrackEntries; of what stays, kube-proxy
v1.34 pkg/proxy/conntrack/cleanup.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.family import is_ipv6
from antrea.facts.node import LocalAddress, PeerNode, ThisNode
from antrea.facts.service import ServiceEndpoint, ServicePort
from antrea.features.proxy.dsr import DIRECT_IPS
from antrea.features.proxy.host import NODE_PORT_IPS, proxies_all, serves_node_ports
from antrea.features.proxy.own_address import OWN_IPS, own_port
from antrea.host.udp_binding import UdpBinding, server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

GATE = "CleanupStaleUDPSvcConntrack"
UDP = "UDP"


def udp_bindings(facts: Facts, endpoint: ServiceEndpoint) -> Iterator[UdpBinding]:
    """One Endpoint's share of each address by which it may have connections: it keeps them for as long as it serves.

    Policies, hints and the end that has begun decide on new ones alone, as they do for TCP.
    """
    node, ipv6 = facts.get(ThisNode), is_ipv6(endpoint.ip)
    if node is None or endpoint.protocol != UDP or not (endpoint.ready or endpoint.serving):
        return
    for port in facts.by(ServicePort, "behind", endpoint.behind):
        for ip, number in (
            *((ip, port.port) for ip in (*port.cluster_ips, *port.outside_ips)),
            *((OWN_IPS[ipv6], own_port(facts, port, ip)) for ip in port.own_ips if is_ipv6(ip) == ipv6),
            *((ip, port.node_port) for ip in node_port_ips(facts, port, ipv6=ipv6)),
        ):
            if is_ipv6(ip) == ipv6:
                yield UdpBinding(ip, number, (server(endpoint.ip, endpoint.port),))


def node_port_ips(facts: Facts, port: ServicePort, *, ipv6: bool) -> Iterator[str]:
    """Yield where the switch gets packets to the port of the Node: from the host, from Pods, and untranslated from other Nodes."""
    config = proxies_all(facts)
    if config is not None and port.node_port:
        yield NODE_PORT_IPS[ipv6]
        if port.direct:
            yield DIRECT_IPS[ipv6]
            yield from (ip for peer in facts.all(PeerNode) for ip in peer.node_ips)
        yield from (address.ip for address in facts.all(LocalAddress) if serves_node_ports(config, address))
