"""Rights at kube-apiserver for BGPPolicies."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, FOLLOW, READ, Rule

AGENT_RULES = (Rule("which addresses this Node advertises to which routers", CRD, ("bgppolicies",), FOLLOW),)
CONTROLLER_RULES = (
    Rule("BGPPolicies that get a status", CRD, ("bgppolicies",), READ),
    Rule("", CRD, ("bgppolicies/status",), ("patch",)),
)
