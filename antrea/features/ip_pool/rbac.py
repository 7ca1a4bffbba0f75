"""Rights at kube-apiserver for IPPools."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, FOLLOW, Rule

CONTROLLER_RULES = (Rule("Events on IPPools while nothing acts on them", CRD, ("ippools",), FOLLOW),)
