"""Feature gate SupportBundleCollection."""

from __future__ import annotations

from antrea.features.framework.gate_row import BOTH, Gate

GATES = (
    Gate(
        "SupportBundleCollection",
        BOTH,
        "ALPHA",
        False,
        "alpha v1.10",
        "Collect logs and state of Nodes into files.",
        built=True,
    ),
)
