"""Feature gate BGPPolicy."""

from __future__ import annotations

from typing import Final

from antrea.features.framework.gate_row import AGENT, Gate

GATE: Final = "BGPPolicy"
GATES = (
    Gate(
        GATE,
        AGENT,
        "ALPHA",
        False,
        "alpha v2.1",
        "Advertise Service, Pod and Egress IPs by BGP; let routers watch Nodes by BFD.",
        built=True,
    ),
)
