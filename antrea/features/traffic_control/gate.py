"""Feature gate TrafficControl."""

from __future__ import annotations

from antrea.features.framework.gate_row import AGENT, Gate

GATES = (
    Gate(
        "TrafficControl",
        AGENT,
        "ALPHA",
        False,
        "alpha v1.7",
        "Mirror or redirect traffic of Pods.",
        built=True,
    ),
)
