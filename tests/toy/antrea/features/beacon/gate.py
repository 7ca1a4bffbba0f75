"""Feature gate Beacon."""

from __future__ import annotations

from typing import Final

from antrea.features.framework.gate_row import BOTH, Gate

GATE: Final = "Beacon"
GATES = (Gate(GATE, BOTH, "ALPHA", True, "", "Make addresses of Beacons lead to the Node.", built=True),)
