"""Rights at kube-apiserver for policies of policy.networking.k8s.io."""

from __future__ import annotations

from antrea.features.framework.rbac import READ, Rule

CONTROLLER_RULES = (
    Rule(
        "policies of administrators",
        "policy.networking.k8s.io",
        ("adminnetworkpolicies", "baselineadminnetworkpolicies", "clusternetworkpolicies"),
        READ,
    ),
    Rule(
        "",
        "policy.networking.k8s.io",
        (
            "adminnetworkpolicies/status",
            "baselineadminnetworkpolicies/status",
            "clusternetworkpolicies/status",
        ),
        ("patch",),
    ),
)
