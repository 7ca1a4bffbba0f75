"""Feature gate Traceflow."""

from __future__ import annotations

from antrea.features.framework.gate_row import BOTH, Gate

GATES = (
    Gate(
        "Traceflow",
        BOTH,
        "BETA",
        True,
        "alpha v0.8, beta v0.11",
        "Trace a packet through the cluster.",
        built=True,
    ),
)
