"""Feature gate NodeIPAM."""

from __future__ import annotations

from typing import Final

from antrea.features.framework.gate_row import CONTROLLER, Gate

GATE: Final = "NodeIPAM"
GATES = (
    Gate(
        GATE,
        CONTROLLER,
        "BETA",
        True,
        "alpha v1.4, beta v1.12",
        "Give Nodes their Pod CIDRs, with `nodeIPAM.enableNodeIPAM`.",
        built=True,
    ),
)
