"""Feature gate NodeNetworkPolicy."""

from __future__ import annotations

from antrea.features.framework.gate_row import AGENT, Gate

GATES = (
    Gate(
        "NodeNetworkPolicy",
        AGENT,
        "ALPHA",
        False,
        "alpha v1.15",
        "Apply policies to Nodes.",
        built=True,
        needs="AntreaPolicy",
    ),
)
