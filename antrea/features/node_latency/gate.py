"""Feature gate NodeLatencyMonitor."""

from __future__ import annotations

from antrea.features.framework.gate_row import AGENT, Gate

GATES = (
    Gate(
        "NodeLatencyMonitor",
        AGENT,
        "ALPHA",
        False,
        "alpha v2.1",
        "Measure round-trip times between Nodes.",
        built=True,
    ),
)
