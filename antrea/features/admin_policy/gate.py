"""Feature gates of admin policies."""

from __future__ import annotations

from antrea.features.framework.gate_row import CONTROLLER, Gate

GATES = (
    Gate(
        "AdminNetworkPolicy",
        CONTROLLER,
        "DEPRECATED",
        False,
        "alpha v1.13, deprecated v2.7",
        "Serve the v1alpha1 AdminNetworkPolicy and BaselineAdminNetworkPolicy; ClusterNetworkPolicy follows it.",
        built=True,
        requires="AntreaPolicy",
    ),
    Gate(
        "ClusterNetworkPolicy",
        CONTROLLER,
        "ALPHA",
        False,
        "alpha v2.7",
        "Serve the v1alpha2 ClusterNetworkPolicy of the network-policy-api project.",
        built=True,
        requires="AntreaPolicy",
    ),
)
