"""Where UDP connections through Services may lead: the agent forgets those to Endpoints and Services that are gone.

parity: pkg/agent/proxy/proxier.go removeStaleServiceConntrackEntries, removeStaleConntrackEntries
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.facts.service import ServiceEndpoint, ServicePort
from antrea.features.proxy.endpoint import is_used
from antrea.host.udp_binding import UdpBinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

GATE = "CleanupStaleUDPSvcConntrack"
UDP = "UDP"


def udp_bindings(facts: Facts, endpoint: ServiceEndpoint) -> Iterator[UdpBinding]:
    """One Endpoint's share of each ClusterIP by which it gets connections."""
    node, ipv6 = facts.get(ThisNode), is_ipv6(endpoint.ip)
    if node is None or endpoint.protocol != UDP:
        return
    for port in facts.by(ServicePort, "behind", endpoint.behind):
        if is_used(facts, endpoint, node, local=port.internal_local):
            for ip in port.cluster_ips:
                if is_ipv6(ip) == ipv6:
                    yield UdpBinding(ip, port.port, (endpoint.ip,))
