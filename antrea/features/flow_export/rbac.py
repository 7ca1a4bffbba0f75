"""Rights at kube-apiserver for destinations of flow records."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, FOLLOW, Rule

AGENT_RULES = (Rule("destinations of flow records", CRD, ("flowexporterdestinations",), FOLLOW),)
CONTROLLER_RULES = (
    Rule(
        "Events on FlowExporterDestinations while their gate is off in agents",
        CRD,
        ("flowexporterdestinations",),
        FOLLOW,
    ),
)
