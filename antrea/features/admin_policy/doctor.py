"""Findings of `antctl doctor`: policies of administrators that are not enforced."""

from __future__ import annotations

from antrea.apis.network_policy_api.part import GROUP
from antrea.features.framework.doctor import PolicyKind

POLICY_KINDS = (
    PolicyKind(
        f"/apis/{GROUP}/v1alpha1/adminnetworkpolicies",
        "AdminNetworkPolicy",
        f"adminnetworkpolicies.{GROUP}",
        is_always_judged=True,
    ),
    PolicyKind(
        f"/apis/{GROUP}/v1alpha1/baselineadminnetworkpolicies",
        "BaselineAdminNetworkPolicy",
        "banp",
        is_always_judged=True,
    ),
    PolicyKind(
        f"/apis/{GROUP}/v1alpha2/clusternetworkpolicies",
        f"ClusterNetworkPolicy of {GROUP}",
        "cnp",
        is_always_judged=True,
    ),
)
