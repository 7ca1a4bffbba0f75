"""Kinds of network policies, and how the API server serves them."""

from __future__ import annotations

from antrea.apis.crd import group, network_policy, tier
from antrea.apis.crd.definition import AGE, ANTREA, Column, Crd, Version

POLICY_COLUMNS = (
    Column("Tier", "string", ".spec.tier", "Tier of the policy."),
    Column("Priority", "number", ".spec.priority", "Place among the policies of the Tier.", format="float"),
    Column(
        "Desired Nodes",
        "number",
        ".status.desiredNodesRealized",
        "Nodes that should realize the policy.",
        format="int32",
    ),
    Column(
        "Current Nodes",
        "number",
        ".status.currentNodesRealized",
        "Nodes that have realized the policy.",
        format="int32",
    ),
    AGE,
    Column(
        "Audited",
        "string",
        '.status.conditions[?(@.type=="Audited")].status',
        "Whether the policy, or a rule of it, drops nothing and is only audited.",
        1,
    ),
)
CRDS = (
    Crd(
        "clustergroups",
        ("cg",),
        "Cluster",
        (Version("v1beta1", group.ClusterGroup, status=True),),
        ("AntreaPolicy",),
        ANTREA,
    ),
    Crd(
        "clusternetworkpolicies",
        ("acnp",),
        "Cluster",
        (Version("v1beta1", network_policy.ClusterNetworkPolicy, POLICY_COLUMNS, status=True),),
        ("AntreaPolicy",),
        ANTREA,
    ),
    Crd(
        "groups",
        ("grp",),
        "Namespaced",
        (Version("v1beta1", group.Group, status=True),),
        ("AntreaPolicy",),
    ),
    Crd(
        "networkpolicies",
        ("annp", "anp"),
        "Namespaced",
        (Version("v1beta1", network_policy.NetworkPolicy, POLICY_COLUMNS, status=True),),
        ("AntreaPolicy",),
        ANTREA,
    ),
    Crd(
        "tiers",
        ("tr",),
        "Cluster",
        (
            Version(
                "v1beta1",
                tier.Tier,
                (Column("Priority", "integer", ".spec.priority", "Place among the Tiers."), AGE),
            ),
        ),
        ("AntreaPolicy",),
        ANTREA,
    ),
)
