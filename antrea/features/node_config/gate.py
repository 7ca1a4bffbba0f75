"""Feature gate AntreaNodeConfig."""

from __future__ import annotations

from antrea.features.framework.gate_row import AGENT, Gate

GATES = (
    Gate(
        "AntreaNodeConfig",
        AGENT,
        "BETA",
        True,
        "beta v2.7",
        "Read settings of single Nodes from AntreaNodeConfig.",
    ),
)
