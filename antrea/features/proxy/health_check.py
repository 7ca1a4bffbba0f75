"""Health check ports where load balancers learn whether this Node has an Endpoint of a Service with externalTrafficPolicy
Local.

parity: third_party/proxy/healthcheck/service_health.go, third_party/proxy/endpointschangetracker.go LocalReadyEndpoints
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.facts.node import LocalAddress, ThisNode
from antrea.facts.service import HealthCheck, Service, ServiceEndpoint, ServicePort
from antrea.features.proxy.host import serves_node_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

ALL_ADDRESSES = ""
"""Value in place of an address to listen at."""


def health_check(facts: Facts, service: Service) -> Iterator[HealthCheck]:
    """The health check of a Service that this agent serves to the outside."""
    config = facts.get(AgentConfig)
    if config is None or not config.antrea_proxy.proxy_all:
        return
    if config.antrea_proxy.disable_service_health_check_server or not service.health_port:
        return
    if facts.by(ServicePort, "service", service.key):
        yield HealthCheck(service.namespace, service.name, service.health_port, service.uid)


def listening_addresses(facts: Facts, config: AgentConfig) -> tuple[str, ...]:
    """Return where the Node answers health checks: as NodePorts, at all addresses or at the chosen ones."""
    if not config.antrea_proxy.node_port_addresses:
        return (ALL_ADDRESSES,)
    addresses = (row for row in facts.all(LocalAddress) if serves_node_ports(config, row))
    return tuple(sorted(row.ip for row in addresses))


def local_endpoints(facts: Facts, service: str) -> int:
    """Count the Endpoints of a Service on this Node that take new connections, by their addresses."""
    node = facts.get(ThisNode)
    ips = {
        endpoint.ip
        for port in facts.by(ServicePort, "service", service)
        for endpoint in facts.by(ServiceEndpoint, "behind", port.behind)
        if node is not None and endpoint.node == node.name and endpoint.ready
    }
    return len(ips)
