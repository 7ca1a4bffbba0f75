"""Rights at kube-apiserver for pools."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, FOLLOW, READ, Rule

AGENT_RULES = (Rule("which Nodes may hold addresses of a pool", CRD, ("externalippools",), FOLLOW),)
CONTROLLER_RULES = (
    Rule("pools of addresses, which admission reads too", CRD, ("externalippools",), READ),
    Rule("", CRD, ("externalippools/status",), ("patch",)),
)
