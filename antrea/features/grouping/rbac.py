"""Rights at kube-apiserver for ClusterGroups and Groups."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, READ, Rule

CONTROLLER_RULES = (
    Rule("groups, and whether their members are known", CRD, ("clustergroups", "groups"), READ),
    Rule("", CRD, ("clustergroups/status", "groups/status"), ("patch",)),
)
