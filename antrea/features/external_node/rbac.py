"""Rights at kube-apiserver for ExternalNodes."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, FOLLOW, Rule

CONTROLLER_RULES = (
    Rule("an ExternalEntity for each interface of an ExternalNode", CRD, ("externalnodes",), FOLLOW),
    Rule("", CRD, ("externalentities",), ("get", "create", "patch", "delete")),
)
