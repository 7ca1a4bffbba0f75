"""Feature gate NodePortLocal."""

from __future__ import annotations

from antrea.features.framework.gate_row import AGENT, Gate

GATES = (
    Gate(
        "NodePortLocal",
        AGENT,
        "GA",
        True,
        "alpha v0.13, beta v1.4, GA v1.14",
        "Give single Pods a port of their Node (with nodePortLocal.enable).",
        built=True,
    ),
)
