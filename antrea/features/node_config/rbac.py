"""Rights at kube-apiserver for AntreaNodeConfigs."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, FOLLOW, Rule

CONTROLLER_RULES = (
    Rule("Events on AntreaNodeConfigs while nothing acts on them", CRD, ("antreanodeconfigs",), FOLLOW),
)
