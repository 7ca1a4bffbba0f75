"""Feature gate ServiceExternalIP."""

from __future__ import annotations

from antrea.features.framework.gate_row import BOTH, Gate

GATES = (
    Gate(
        "ServiceExternalIP",
        BOTH,
        "BETA",
        True,
        "alpha v1.5, beta v2.3",
        "Give LoadBalancer Services external IPs from pools.",
        built=True,
    ),
)
