"""Rights at kube-apiserver for Egresses."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, READ, Rule

AGENT_RULES = (
    Rule("Egresses; the status of those whose address is on this Node", CRD, ("egresses",), READ),
    Rule("", CRD, ("egresses/status",), ("patch",)),
    Rule(
        "members of Egresses, as the controller computes them",
        "controlplane.antrea.io",
        ("egressgroups",),
        ("watch",),
    ),
)
CONTROLLER_RULES = (
    Rule("addresses of pools for Egresses", CRD, ("egresses",), ("get", "list", "watch", "patch")),
    Rule("", CRD, ("egresses/status",), ("patch",)),
)
ANTCTL_RULES = (Rule("traffic by Egress, for kubectl", "stats.antrea.io", ("egressstats",), ("get", "list")),)
