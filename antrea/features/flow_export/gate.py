"""Feature gate FlowExporter."""

from __future__ import annotations

from antrea.features.framework.gate_row import AGENT, Gate

GATES = (Gate("FlowExporter", AGENT, "ALPHA", False, "alpha v0.9", "Export flow records.", built=True),)
