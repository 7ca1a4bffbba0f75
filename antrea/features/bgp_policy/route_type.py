"""Types of advertised routes, without what only the agent needs: antctl reads them as it starts."""

from __future__ import annotations

from typing import Final

CLUSTER_IP, EXTERNAL_IP, LOAD_BALANCER_IP = "ClusterIP", "ExternalIP", "LoadBalancerIP"
EGRESS_TYPE: Final = "EgressIP"
POD_TYPE: Final = "NodeIPAMPodCIDR"
SERVICE_TYPES: Final = {name: f"Service{name}" for name in (CLUSTER_IP, EXTERNAL_IP, LOAD_BALANCER_IP)}
"""Types of routes as upstream names them, by the type of the address in a BGPPolicy."""
TYPES: Final = (EGRESS_TYPE, *SERVICE_TYPES.values(), POD_TYPE)
