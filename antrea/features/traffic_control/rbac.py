"""Rights at kube-apiserver for TrafficControls."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, FOLLOW, Rule

AGENT_RULES = (
    Rule(
        "which Pods' packets are mirrored or redirected, and the labels of their Namespaces",
        CRD,
        ("trafficcontrols",),
        FOLLOW,
    ),
    Rule("", "", ("namespaces",), FOLLOW),
)
CONTROLLER_RULES = (
    Rule("Events on TrafficControls while their gate is off in agents", CRD, ("trafficcontrols",), FOLLOW),
)
