"""Webhooks of Antrea's own policies, their tiers and groups."""

from __future__ import annotations

from typing import Any

from antrea.apis.crd.group import ClusterGroup, Group
from antrea.apis.crd.network_policy import ClusterNetworkPolicy, NetworkPolicy
from antrea.apis.crd.tier import Tier
from antrea.features.framework.admission import Webhook
from antrea.features.network_policy import tier
from antrea.features.network_policy.admission import group as admission_group
from antrea.features.network_policy.admission.group import (
    ClusterGroupChildren,
    NamespacedGroupChildren,
    validate_cluster_group,
    validate_group,
)
from antrea.features.network_policy.admission.policy import name_policy, validate_policy
from antrea.features.network_policy.admission.tier import (
    UPSTREAM_GATE,
    validate_tier,
    validate_upstream_policy,
)
from antrea.features.network_policy.tier import NamespacedTierUse, TierRow, TierUse

GROUP, VERSIONS, GATES = "crd.antrea.io", ("v1beta1",), ("AntreaPolicy",)
_POLICY_RULES = (
    "the tier exists and suits the actions; names of rules are unique; appliedTo, peers, ports and protocols fit"
    " together; warns of ports and selectors that match otherwise than they look, and of labels too long for the kernel's log"
)
_NAME_RULES = "names unnamed rules, fills in the tier application"
_GROUP_RULES = "one way to choose members; valid labels and CIDRs; children have no children; warns of selectors that select nothing"

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
        "at most 20; priorities unique, not reserved, never changed; default and used tiers cannot be deleted",
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
        "cnpvalidator.antrea.io", "/validate/cnp", ("CREATE",), "policy.networking.k8s.io", ("v1alpha2",),
        "clusternetworkpolicies", "Cluster", dict[str, Any],
        "no Tier of the user has priority 220", validate=validate_upstream_policy, gates=(UPSTREAM_GATE,),
        reads=(TierRow,),
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
