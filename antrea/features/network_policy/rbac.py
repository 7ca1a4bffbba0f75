"""Rights at kube-apiserver for network policies."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, FOLLOW, READ, Rule

AGENT_RULES = (
    Rule(
        "policies and groups, as the controller computes them for this Node",
        "controlplane.antrea.io",
        ("addressgroups", "appliedtogroups", "networkpolicies"),
        ("watch",),
    ),
    Rule("", "controlplane.antrea.io", ("networkpolicies/status",), ("create",)),
)
CONTROLLER_RULES = (
    Rule(
        "policies; admission compares a new object with the others",
        "networking.k8s.io",
        ("networkpolicies",),
        FOLLOW,
    ),
    Rule("", CRD, ("clusternetworkpolicies", "networkpolicies"), READ),
    Rule(
        "how far Nodes are with policies",
        CRD,
        ("clusternetworkpolicies/status", "networkpolicies/status"),
        ("patch",),
    ),
    Rule("Pods, Namespaces, Services and ExternalEntities that policies select", "", ("pods",), READ),
    Rule("", "", ("namespaces", "services"), FOLLOW),
    Rule("", CRD, ("externalentities",), FOLLOW),
    Rule("the default Tiers", CRD, ("tiers",), READ),
    Rule(
        "",
        CRD,
        ("tiers",),
        ("create", "patch"),
        names=("emergency", "securityops", "networkops", "platform", "application", "baseline"),
    ),
)
ANTCTL_RULES = (
    Rule(
        "traffic by policy, for kubectl",
        "stats.antrea.io",
        ("networkpolicystats", "antreaclusternetworkpolicystats", "antreanetworkpolicystats"),
        ("get", "list"),
    ),
)
