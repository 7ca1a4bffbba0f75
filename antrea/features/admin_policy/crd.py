"""Kinds of admin policies, and how the API server serves them."""

from __future__ import annotations

from antrea.apis.crd.definition import AGE, ANTREA, Column, Crd, Version
from antrea.apis.network_policy_api import part, v1alpha1
from antrea.apis.network_policy_api import v1alpha2 as cluster_network_policy

ADMIN_PRIORITY = Column("Priority", "string", ".spec.priority", "Place among the policies of the tier.")
APPROVED = "api-approved.kubernetes.io"
"""Annotation that the API server wants of definitions in a group of Kubernetes: where the API was approved."""
APPROVALS = "https://github.com/kubernetes-sigs/network-policy-api/pull"
CRDS = (
    Crd(
        "adminnetworkpolicies",
        ("anp",),
        "Cluster",
        (Version("v1alpha1", v1alpha1.AdminNetworkPolicy, (ADMIN_PRIORITY, AGE), status=True),),
        ("AdminNetworkPolicy",),
        ANTREA,
        group=part.GROUP,
        annotations={APPROVED: f"{APPROVALS}/300"},
    ),
    Crd(
        "baselineadminnetworkpolicies",
        ("banp",),
        "Cluster",
        (Version("v1alpha1", v1alpha1.BaselineAdminNetworkPolicy, (AGE,), status=True, only_name="default"),),
        ("AdminNetworkPolicy",),
        ANTREA,
        group=part.GROUP,
        annotations={APPROVED: f"{APPROVALS}/300"},
    ),
    Crd(
        "clusternetworkpolicies",
        ("cnp",),
        "Cluster",
        (
            Version(
                "v1alpha2",
                cluster_network_policy.ClusterNetworkPolicy,
                (Column("Tier", "string", ".spec.tier", "Admin or Baseline."), ADMIN_PRIORITY, AGE),
                status=True,
            ),
        ),
        ("ClusterNetworkPolicy",),
        ANTREA,
        group=part.GROUP,
        annotations={APPROVED: f"{APPROVALS}/347"},
    ),
)
