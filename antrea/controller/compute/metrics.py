"""What the controller counts, under upstream's names; only what has a true value.

parity: pkg/controller/metrics/prometheus.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping

APPLIED_TO_GROUPS = Metric(
    "antrea_controller_applied_to_group_processed",
    "counter",
    "STABLE",
    "The total number of applied-to-group processed",
)
ADDRESS_GROUPS = Metric(
    "antrea_controller_address_group_processed",
    "counter",
    "STABLE",
    "The total number of address-group processed ",
)
POLICIES = Metric(
    "antrea_controller_network_policy_processed",
    "counter",
    "STABLE",
    "The total number of internal-networkpolicy processed",
)
CLUSTER_POLICY_STATUSES = Metric(
    "antrea_controller_acnp_status_updates",
    "counter",
    "ALPHA",
    "The total number of actual status updates performed for Antrea ClusterNetworkPolicy Custom Resources",
)
POLICY_STATUSES = Metric(
    "antrea_controller_annp_status_updates",
    "counter",
    "ALPHA",
    "The total number of actual status updates performed for Antrea NetworkPolicy Custom Resources",
)
EGRESS_STATUSES = Metric(
    "antrea_controller_eg_status_updates",
    "counter",
    "ALPHA",
    "The total number of actual status updates performed for Antrea Egress Custom Resources",
)
POOL_STATUSES = Metric(
    "antrea_controller_eip_status_updates",
    "counter",
    "ALPHA",
    "The total number of actual status updates performed for Antrea ExternalIPPool Custom Resources",
)
ROWS = {
    "ClusterNetworkPolicy": CLUSTER_POLICY_STATUSES,
    "addressgroups": ADDRESS_GROUPS,
    "NetworkPolicy": POLICY_STATUSES,
    "appliedtogroups": APPLIED_TO_GROUPS,
    "Egress": EGRESS_STATUSES,
    "ExternalIPPool": POOL_STATUSES,
    "networkpolicies": POLICIES,
}


def policy_metrics(counted: Mapping[str, int]) -> str:
    """In Prometheus' format; `counted`: number of objects published or withdrawn, by plural, and of statuses written, by kind."""
    return "".join(row.text([Sample(counted.get(key, 0))]) for key, row in ROWS.items())
