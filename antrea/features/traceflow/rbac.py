"""Rights at kube-apiserver for Traceflows."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, Rule

AGENT_RULES = (
    Rule(
        "packets that are traced; antctl in the agent's container starts them",
        CRD,
        ("traceflows",),
        ("get", "list", "watch", "create", "delete"),
    ),
    Rule("", CRD, ("traceflows/status",), ("patch",)),
)
CONTROLLER_RULES = (
    Rule(
        "tags and phases of packets that are traced; antctl in the controller's container starts them",
        CRD,
        ("traceflows",),
        ("get", "list", "watch", "create", "delete"),
    ),
    Rule("", CRD, ("traceflows/status",), ("patch",)),
)
