"""Feature gate ExternalNode."""

from __future__ import annotations

from antrea.features.framework.gate_row import AGENT, Gate

GATES = (
    Gate(
        "ExternalNode",
        AGENT,
        "ALPHA",
        False,
        "alpha v1.8",
        "Run the agent on machines outside the cluster.",
        built=True,
    ),
)
