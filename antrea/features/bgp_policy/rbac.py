"""Rights at kube-apiserver for BGPPolicies."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, FOLLOW, READ, Rule

AGENT_RULES = (
    Rule("which addresses this Node advertises to which routers", CRD, ("bgppolicies",), FOLLOW),
    Rule("", "controlplane.antrea.io", ("nodebgpsummaries",), ("create",)),
)
CONTROLLER_RULES = (
    Rule("BGPPolicies that get a status", CRD, ("bgppolicies",), READ),
    Rule("", CRD, ("bgppolicies/status",), ("patch",)),
    Rule(
        "condition of Services and Egresses that are advertised", "", ("services",), ("get", "list", "watch")
    ),
    Rule("", "", ("services/status",), ("patch",)),
    Rule("", CRD, ("egresses",), ("get", "list", "watch")),
    Rule("", CRD, ("egresses/status",), ("patch",)),
)
