"""Metrics of the controller's computing process under upstream's names; metrics without a true value are absent.

parity: pkg/controller/metrics/prometheus.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine.core.workload import Workload
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.log.workload_metrics import workload_samples

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
ADDRESS_GROUP_QUEUE = Metric(
    "antrea_controller_length_address_group_queue",
    "gauge",
    "STABLE",
    "The length of AddressGroupQueue",
)
APPLIED_TO_GROUP_QUEUE = Metric(
    "antrea_controller_length_applied_to_group_queue",
    "gauge",
    "STABLE",
    "The length of AppliedToGroupQueue",
)
POLICY_QUEUE = Metric(
    "antrea_controller_length_network_policy_queue",
    "gauge",
    "STABLE",
    "The length of InternalNetworkPolicyQueue",
)
ADDRESS_GROUP_DURATION = Metric(
    "antrea_controller_address_group_sync_duration_milliseconds",
    "histogram",
    "ALPHA",
    "The duration of syncing address-group",
)
APPLIED_TO_GROUP_DURATION = Metric(
    "antrea_controller_applied_to_group_sync_duration_milliseconds",
    "histogram",
    "ALPHA",
    "The duration of syncing applied-to-group",
)
POLICY_DURATION = Metric(
    "antrea_controller_network_policy_sync_duration_milliseconds",
    "histogram",
    "ALPHA",
    "The duration of syncing internal-networkpolicy",
)
WORKLOADS = {
    "addressgroups": (ADDRESS_GROUP_QUEUE, ADDRESS_GROUP_DURATION),
    "appliedtogroups": (APPLIED_TO_GROUP_QUEUE, APPLIED_TO_GROUP_DURATION),
    "networkpolicies": (POLICY_QUEUE, POLICY_DURATION),
}
ROWS = {
    "ClusterNetworkPolicy": CLUSTER_POLICY_STATUSES,
    "addressgroups": ADDRESS_GROUPS,
    "NetworkPolicy": POLICY_STATUSES,
    "appliedtogroups": APPLIED_TO_GROUPS,
    "Egress": EGRESS_STATUSES,
    "ExternalIPPool": POOL_STATUSES,
    "networkpolicies": POLICIES,
}


def policy_metrics(counted: Mapping[str, int], workloads: Mapping[str, Workload]) -> str:
    """In Prometheus' format, by name.

    `counted`: number of objects published or withdrawn, by plural, and of statuses written, by kind; `workloads`: of the jobs
    that work out policies and groups, by plural.
    """
    texts = {row.name: row.text([Sample(counted.get(key, 0))]) for key, row in ROWS.items()}
    for key, (length, duration) in WORKLOADS.items():
        workload = workloads.get(key, Workload())
        texts[length.name] = length.text([Sample(workload.waiting)])
        texts[duration.name] = duration.text(workload_samples(workload, unit=1))
    return "".join(texts[name] for name in sorted(texts))
