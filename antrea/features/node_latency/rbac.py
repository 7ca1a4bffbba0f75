"""Rights at kube-apiserver for monitors of latency."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, FOLLOW, Rule

AGENT_RULES = (
    Rule("how often other Nodes are measured, and the results", CRD, ("nodelatencymonitors",), FOLLOW),
    Rule("", "stats.antrea.io", ("nodelatencystats",), ("create", "delete")),
)
CONTROLLER_RULES = (
    Rule(
        "Events on NodeLatencyMonitors while their gate is off in agents",
        CRD,
        ("nodelatencymonitors",),
        FOLLOW,
    ),
)
