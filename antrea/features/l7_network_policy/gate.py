"""Feature gate L7NetworkPolicy."""

from __future__ import annotations

from antrea.features.framework.gate_row import BOTH, Gate

GATES = (
    Gate(
        "L7NetworkPolicy",
        BOTH,
        "ALPHA",
        False,
        "alpha v1.10",
        "Allow by application protocol.",
        built=True,
        needs="AntreaPolicy",
    ),
)
