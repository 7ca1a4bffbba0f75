"""What the controller counts, under upstream's names; only what has a true value.

parity: pkg/controller/metrics/prometheus.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.outside.metrics import Metric, Sample

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
ROWS = {"addressgroups": ADDRESS_GROUPS, "appliedtogroups": APPLIED_TO_GROUPS, "networkpolicies": POLICIES}


def policy_metrics(processed: Mapping[str, int]) -> str:
    """In Prometheus' format; `processed`: how often something of each kind, by its plural, was told or withdrawn."""
    return "".join(row.text([Sample(processed.get(plural, 0))]) for plural, row in ROWS.items())
