"""Webhook of policies of policy.networking.k8s.io."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.errors import Invalid
from antrea.features.framework.admission import Installation, Webhook
from antrea.features.network_policy.admission.feature import UPSTREAM_ADMIN, UPSTREAM_GATE
from antrea.features.network_policy.tier import TierRow

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps


def validate_upstream_policy(facts: Facts, review: Review[object]) -> Steps:
    """Validate a ClusterNetworkPolicy of policy.networking.k8s.io. Raises Invalid."""
    if UPSTREAM_GATE not in (facts.get(Installation) or Installation()).gates:
        raise Invalid(
            "kind",
            "ClusterNetworkPolicy is not supported: the ClusterNetworkPolicy feature gate is not enabled",
        )
    if review.operation == "CREATE" and facts.by(TierRow, "priority", UPSTREAM_ADMIN):
        raise Invalid(
            "kind",
            f"ClusterNetworkPolicy creation is blocked: a user-created Tier at priority {UPSTREAM_ADMIN}"
            " (cnpAdminTierPriority) already exists; the Tier and its associated policies must be"
            " deleted/migrated first before a ClusterNetworkPolicy can be created",
        )
    yield from ()


WEBHOOKS = (
    Webhook(
        "cnpvalidator.antrea.io", "/validate/cnp", ("CREATE",), "policy.networking.k8s.io", ("v1alpha2",),
        "clusternetworkpolicies", "Cluster", dict[str, Any],
        "fails while a Tier of the user has priority 220", validate=validate_upstream_policy, gates=(UPSTREAM_GATE,),
        reads=(TierRow,),
    ),
)  # fmt: skip
