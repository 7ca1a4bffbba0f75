"""Finding of `antctl doctor`: a NodeLatencyMonitor while the gate is off in agents."""

from __future__ import annotations

from antrea.features.framework.doctor import CRD, GatedKind

GATED_KINDS = (GatedKind(f"{CRD}/v1alpha1/nodelatencymonitors", "NodeLatencyMonitor", "NodeLatencyMonitor"),)
