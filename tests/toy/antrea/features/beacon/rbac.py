"""Rights at kube-apiserver for Beacons."""

from __future__ import annotations

from antrea.features.framework.rbac import CRD, FOLLOW, Rule

AGENT_RULES = (Rule("addresses that lead to this Node", CRD, ("beacons",), FOLLOW),)
CONTROLLER_RULES = (
    Rule("Beacons that get a status", CRD, ("beacons",), FOLLOW),
    Rule("", CRD, ("beacons/status",), ("patch",)),
)
