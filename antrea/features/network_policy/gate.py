"""Feature gates of network policies."""

from __future__ import annotations

from antrea.features.framework.gate_row import BOTH, Gate

GATES = (
    Gate(
        "AntreaPolicy",
        BOTH,
        "BETA",
        True,
        "alpha v0.8, beta v1.0",
        "Serve Antrea's own ClusterNetworkPolicy and NetworkPolicy, with tiers and priorities.",
        built=True,
    ),
    Gate(
        "NetworkPolicyStats",
        BOTH,
        "BETA",
        True,
        "alpha v0.10, beta v1.2",
        "Count traffic by policy and rule.",
        built=True,
    ),
)
