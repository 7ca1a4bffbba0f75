"""Objects of policy.networking.k8s.io as users write them, beside those of native_world.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from native_world import converted

from antrea.apis.network_policy_api import v1alpha1, v1alpha2
from antrea.features.admin_policy.controller import AdminPolicy, BaselinePolicy, TieredPolicy, admin_row

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

CONVERSIONS: dict[str, tuple[type, Any]] = {
    "AdminNetworkPolicy": (v1alpha1.AdminNetworkPolicy, admin_row(AdminPolicy)),
    "BaselineAdminNetworkPolicy": (v1alpha1.BaselineAdminNetworkPolicy, admin_row(BaselinePolicy)),
    "ClusterNetworkPolicy": (v1alpha2.ClusterNetworkPolicy, admin_row(TieredPolicy)),
}


def admin_policy(kind: str, name: str, **more: Any) -> Fact:
    """As `row` of native_world.py: `annotations` are its metadata's, `spec` is at its top."""
    return converted(*CONVERSIONS[kind], name, **more)
