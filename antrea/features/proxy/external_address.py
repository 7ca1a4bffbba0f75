"""Ownership of external addresses of Services: those of Nodes, Pods and ClusterIPs stay theirs, and of two Services the older
has it.

Packets to an address that a Service takes go to the switch: a Node or a Pod would no longer be reached at its own, nor another
Service at its ClusterIP, and a tenant's Service would take over their connections. Upstream takes them all.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Act
from antrea.facts.fact import precedence
from antrea.facts.member import AgentNode
from antrea.facts.node import ThisNode
from antrea.facts.service import Service, ServicePort

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts


class ExternalIPConflict(Act, frozen=True):
    """Event that an address which a Service claims belongs to another."""

    namespace: str
    name: str
    uid: str
    message: str


def owner_of(facts: Facts, ip: str) -> str:
    """Return the Node, the Service or the Pods owner_of own address this is; empty if none."""
    if node := node_with(facts, ip):
        return f"Node {node}"
    return whose_but_nodes(facts, ip)


def node_with(facts: Facts, ip: str) -> str:
    """Return the Node with this address in its object; empty if none."""
    return min((node.name for node in facts.by(AgentNode, "address", ip)), default="")


def whose_but_nodes(facts: Facts, ip: str) -> str:
    """The Service or the Pods owner_of own address this is."""
    if services := facts.by(Service, "cluster_ip", ip):
        return f"Service {min(service.key for service in services)}"
    for cidr in networks_of(ip):
        if nodes := facts.by(AgentNode, "pod_cidr", cidr):
            return f"the Pods of Node {min(node.name for node in nodes)}"
    return ""


@lru_cache(maxsize=256)
def networks_of(ip: str) -> tuple[str, ...]:
    """Return all networks that it is in, as text: by these Nodes are found without a look at each."""
    longest = ip_address(ip).max_prefixlen
    return tuple(str(ip_network((ip, length), strict=False)) for length in range(longest, 7, -1))


def owner(facts: Facts, port: ServicePort, ip: str) -> ServicePort:
    """Return the owner of this address with the protocol and number of `port`: the oldest of all that claim it."""
    claims = facts.by(ServicePort, "external", (ip, port.protocol, port.port))
    return min(claims, key=lambda claim: precedence(claim.created, claim.key), default=port)


def conflict(service: Service, message: str) -> ExternalIPConflict:
    """The Event of a Service for an address that it does not get."""
    return ExternalIPConflict(
        f"{service.key}: {message}",
        message,
        namespace=service.namespace,
        name=service.name,
        uid=service.uid,
        message=message,
    )


# units


def refused_addresses(facts: Facts, service: Service) -> Iterator[ExternalIPConflict]:
    """Yield refused addresses; one agent reports for all, but each Node reports those of Nodes that may be served."""
    config = facts.get(AgentConfig)
    if config is None or not config.antrea_proxy.proxy_all or not reports_for_all(facts):
        return
    refused = whose_but_nodes if config.antrea_proxy.serve_node_external_ips else owner_of
    for ip in service.external_ips:
        if holder := refused(facts, ip):
            yield conflict(service, f"{ip} is an address of {holder}: it is not served as an external IP")


def unusable_addresses(facts: Facts, service: Service) -> Iterator[ExternalIPConflict]:
    """Yield unusable addresses, also without proxyAll, as Pods reach addresses of load balancers then. One agent reports for
    all.
    """
    if service.refused and reports_for_all(facts):
        for sentence in service.refused:
            yield conflict(service, sentence)


def lost_claims(facts: Facts, port: ServicePort) -> Iterator[ExternalIPConflict]:
    """Yield the Event of the younger Service, which names the one with the address."""
    service = facts.get(Service, port.service)
    config = facts.get(AgentConfig)
    if service is None or config is None or not config.antrea_proxy.proxy_all:
        return
    for ip in (*(port.external_ips if reports_for_all(facts) else ()), *port.own_ips):
        has_it = owner(facts, port, ip)
        if has_it.service != port.service:
            place = f"{ip}, port {port.port}/{port.protocol}"
            yield conflict(service, f"{place} belongs to Service {has_it.service}, which is older")


def reports_for_all(facts: Facts) -> bool:
    """Whether this is the first of all Nodes by name."""
    node = facts.get(ThisNode)
    return node is not None and node.name == min((row.name for row in facts.all(AgentNode)), default="")
