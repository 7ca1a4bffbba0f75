"""Resources of the aggregated API for policies: policies and groups for agents, evaluations, and traffic by policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis import controlplane as cp
from antrea.apis import controlplane_report as report
from antrea.apis import stats
from antrea.apis.meta import ObjectMetadata
from antrea.apis.resource import Members, Subresource
from antrea.features.framework.api_resource import (
    CREATE,
    READ,
    WATCHED,
    controlplane_resource,
    count_columns,
    stats_resource,
)

if TYPE_CHECKING:
    from antrea.apis.resource import Resource

POLICY_TOTALS: Final = ("sessions", "packets", "bytes")


def member_patches(
    patch: type[cp.AppliedToGroupPatch] | type[cp.AddressGroupPatch], *, by_node: bool
) -> Members:
    """Return how changes of a group are sent, with this class of events."""
    return Members(
        lambda meta, added, removed: patch(
            metadata=meta, added_group_members=added, removed_group_members=removed
        ),
        by_node,
    )


def gone_policy(_: Resource, policy: cp.NetworkPolicy) -> cp.NetworkPolicy:
    """Return the object of a DELETED event: name, UID and the policy of the user."""
    meta = policy.metadata
    short = ObjectMetadata(name=meta.name, uid=meta.uid, generation=meta.generation)
    return cp.NetworkPolicy(metadata=short, source_ref=policy.source_ref)


RESOURCES = (
    controlplane_resource(
        "addressgroups", "addressgroup", cp.AddressGroup, WATCHED,
        members=member_patches(cp.AddressGroupPatch, by_node=False),
    ),
    controlplane_resource(
        "appliedtogroups", "appliedtogroup", cp.AppliedToGroup, WATCHED,
        members=member_patches(cp.AppliedToGroupPatch, by_node=True),
    ),
    controlplane_resource(
        "networkpolicies", "networkpolicy", cp.NetworkPolicy, WATCHED, gone=gone_policy,
        subresources=(Subresource("status", report.NetworkPolicyStatus, CREATE),),
    ),
    controlplane_resource(
        "networkpolicyevaluation", "networkpolicyevaluation", report.NetworkPolicyEvaluation, CREATE, stored=False,
        columns=(),
    ),
    stats_resource(
        "antreaclusternetworkpolicystats", "antreaclusternetworkpolicystats",
        stats.AntreaClusterNetworkPolicyStats, READ, columns=count_columns("Antrea ClusterNetworkPolicy", *POLICY_TOTALS),
    ),
    stats_resource(
        "antreanetworkpolicystats", "antreanetworkpolicystats", stats.AntreaNetworkPolicyStats, READ,
        namespaced=True, columns=count_columns("Antrea NetworkPolicy", *POLICY_TOTALS),
    ),
    stats_resource(
        "networkpolicystats", "networkpolicystats", stats.NetworkPolicyStats, READ,
        namespaced=True, columns=count_columns("K8s NetworkPolicy", *POLICY_TOTALS),
    ),
)  # fmt: skip
