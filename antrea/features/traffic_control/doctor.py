"""Findings of `antctl doctor`: ports that are missing, Pods that do not follow a TrafficControl."""

from __future__ import annotations

from antrea.features.framework.doctor import CRD, ConditionCheck, GatedKind

CONDITIONS = (
    ConditionCheck("traffic-control", "TrafficControlPortsMissing", "error", "ip link show"),
    ConditionCheck(
        "traffic-control", "TrafficControlBypassed", "warning", "kubectl get trafficcontrols,acnp,annp -A"
    ),
    ConditionCheck(
        "traffic-control", "TrafficControlOverlapped", "warning", "kubectl get trafficcontrols,acnp,annp -A"
    ),
)
GATED_KINDS = (GatedKind(f"{CRD}/v1alpha2/trafficcontrols", "TrafficControl", "TrafficControl"),)
