"""Webhooks of Antrea's own policies, their tiers and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.apis.crd.group import ClusterGroup, Group
from antrea.apis.crd.network_policy import ClusterNetworkPolicy, NetworkPolicy
from antrea.apis.crd.tier import Tier
from antrea.errors import Invalid
from antrea.features.framework.admission import Installation, Webhook
from antrea.features.network_policy import tier
from antrea.features.network_policy.admission import group as admission_group
from antrea.features.network_policy.admission.group import (
    ClusterGroupChildren,
    NamespacedGroupChildren,
    validate_cluster_group,
    validate_group,
)
from antrea.features.network_policy.admission.policy import name_policy, validate_policy
from antrea.features.network_policy.tier import DEFAULT_NAMES, NamespacedTierUse, TierRow, TierUse

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps

MAX_TIERS = 20
RESERVED = (251, 252, 254, 255)
"""Reserved priorities; 250 and 253 are the default and the baseline tier's."""
UPSTREAM_ADMIN = 220
"""Priority of the admin tier of the network-policy-api project."""
UPSTREAM_GATE = "ClusterNetworkPolicy"


# parity: pkg/controller/networkpolicy/validate.go tierValidator
def validate_tier(facts: Facts, review: Review[Tier]) -> Steps:
    """Validate a Tier. Raises Invalid."""
    if review.operation == "CREATE":
        _check_new(facts, review.new)
    elif review.operation == "UPDATE":
        _check_priority_kept(facts, review)
    elif review.operation == "DELETE":
        _check_unused(facts, review.before.metadata.name)
    yield from ()


def _check_new(facts: Facts, tier: Tier) -> None:
    name, priority = tier.metadata.name, tier.spec.priority
    if len({row.priority for row in facts.all(TierRow)}) >= MAX_TIERS:
        raise Invalid("spec", f"maximum number of Tiers supported: {MAX_TIERS}")
    path = "spec.priority"
    if priority in RESERVED:
        raise Invalid(path, f"tier {name} priority {priority} is reserved")
    if priority == UPSTREAM_ADMIN and UPSTREAM_GATE in (facts.get(Installation) or Installation()).gates:
        raise Invalid(
            path,
            f"tier {name} priority {priority} is reserved for upstream ClusterNetworkPolicy when the"
            " ClusterNetworkPolicy feature gate is enabled; choose a different priority",
        )
    if facts.by(TierRow, "priority", priority):
        raise Invalid(path, f"tier {name} priority {priority} overlaps with existing Tier")


def _check_priority_kept(facts: Facts, review: Review[Tier]) -> None:
    us = facts.get(Installation) or Installation()
    # we put a default tier's priority right ourselves
    if review.user.username == f"system:serviceaccount:{us.namespace}:{us.service_account}":
        return
    if review.new.spec.priority != review.before.spec.priority:
        raise Invalid("spec.priority", "update to Tier priority is not allowed")


def _check_unused(facts: Facts, name: str) -> None:
    path = "metadata.name"
    if name in DEFAULT_NAMES:
        raise Invalid(path, f"cannot delete reserved tier {name}")
    for kind, noun in (
        (TierUse, "Antrea ClusterNetworkPolicies"),
        (NamespacedTierUse, "Antrea NetworkPolicies"),
    ):
        if uses := facts.by(kind, "tier", name):
            raise Invalid(path, f"tier {name} is referenced by {len(uses)} {noun}")


GROUP, VERSIONS, GATES = "crd.antrea.io", ("v1beta1",), ("AntreaPolicy",)
_POLICY_RULES = (
    "the tier exists and allows the actions; names of rules are unique; appliedTo, peers, ports and protocols can be combined."
    " Warns about ports and selectors that match other traffic than they seem to, and about labels too long for the kernel's log"
)
_NAME_RULES = "names rules without a name; sets the tier `application` where none is given"
_GROUP_RULES = "members are selected in one way only; labels and CIDRs are valid; child groups have no child groups. Warns about selectors that match nothing"

WEBHOOKS = (
    Webhook(
        "acnpmutator.antrea.io", "/mutate/acnp", ("CREATE", "UPDATE"), GROUP, VERSIONS, "clusternetworkpolicies",
        "Cluster", dict[str, Any], _NAME_RULES, "crdmutator.antrea.io", mutate=name_policy, gates=GATES,
    ),
    Webhook(
        "annpmutator.antrea.io", "/mutate/annp", ("CREATE", "UPDATE"), GROUP, VERSIONS, "networkpolicies",
        "Namespaced", dict[str, Any], _NAME_RULES, "crdmutator.antrea.io", mutate=name_policy, gates=GATES, aliases=("/mutate/anp",),
    ),
    Webhook(
        "tiervalidator.antrea.io", "/validate/tier", ("CREATE", "UPDATE", "DELETE"), GROUP, VERSIONS, "tiers",
        "Cluster", Tier,
        "at most 20 tiers; priorities are unique, not reserved, and cannot be changed; default tiers and tiers in use cannot be deleted",
        validate=validate_tier, gates=GATES,
        reads=(TierRow, TierUse, NamespacedTierUse), anew=(tier.TIERS,),
    ),
    Webhook(
        "acnpvalidator.antrea.io", "/validate/acnp", ("CREATE", "UPDATE"), GROUP, VERSIONS,
        "clusternetworkpolicies", "Cluster", ClusterNetworkPolicy, _POLICY_RULES, validate=validate_policy,
        gates=GATES,
    ),
    Webhook(
        "annpvalidator.antrea.io", "/validate/annp", ("CREATE", "UPDATE"), GROUP, VERSIONS, "networkpolicies",
        "Namespaced", NetworkPolicy, _POLICY_RULES, validate=validate_policy, gates=GATES,
    ),
    Webhook(
        "clustergroupvalidator.antrea.io", "/validate/clustergroup", ("CREATE", "UPDATE"), GROUP, VERSIONS,
        "clustergroups", "Cluster", ClusterGroup, _GROUP_RULES, validate=validate_cluster_group, gates=GATES, reads=(ClusterGroupChildren,),
    ),
    Webhook(
        "groupvalidator.antrea.io", "/validate/group", ("CREATE", "UPDATE"), GROUP, VERSIONS, "groups",
        "Namespaced", Group, _GROUP_RULES, validate=validate_group, gates=GATES,
        reads=(NamespacedGroupChildren,),
    ),
)  # fmt: skip
WATCHED = (*tier.WATCHED, *admission_group.WATCHED)
