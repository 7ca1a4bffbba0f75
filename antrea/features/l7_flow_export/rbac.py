"""Rights at kube-apiserver for annotations that ask for requests in flow records."""

from __future__ import annotations

from antrea.features.framework.rbac import FOLLOW, Rule

AGENT_RULES = (
    Rule("Namespaces with the annotation for requests in flow records", "", ("namespaces",), FOLLOW),
)
CONTROLLER_RULES = (
    Rule(
        "workloads with an annotation that is for Pods; their metadata alone is read",
        "apps",
        ("daemonsets", "deployments", "replicasets", "statefulsets"),
        FOLLOW,
        gate="L7FlowExporter",
    ),
    Rule("", "batch", ("cronjobs", "jobs"), FOLLOW, gate="L7FlowExporter"),
)
