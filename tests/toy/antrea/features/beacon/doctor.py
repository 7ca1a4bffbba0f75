"""Findings of `antctl doctor`: Beacons without flows, and Beacons while the gate is off in agents."""

from __future__ import annotations

from antrea.features.beacon.beacon import PATH
from antrea.features.beacon.gate import GATE

from antrea.features.framework.doctor import ConditionCheck, GatedKind

CONDITIONS = (
    ConditionCheck("beacons", "BeaconsUnlit", "warning", "kubectl -n {namespace} logs {pod} -c antrea-agent"),
)
GATED_KINDS = (GatedKind(PATH, "Beacon", GATE),)
