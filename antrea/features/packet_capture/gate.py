"""Feature gate PacketCapture."""

from __future__ import annotations

from antrea.features.framework.gate_row import AGENT, Gate

GATES = (
    Gate(
        "PacketCapture",
        AGENT,
        "ALPHA",
        False,
        "alpha v2.2",
        "Capture packets of a Pod into a file.",
        built=True,
    ),
)
