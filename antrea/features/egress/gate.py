"""Feature gates of Egress."""

from __future__ import annotations

from antrea.features.framework.gate_row import AGENT, BOTH, Gate

GATES = (
    Gate(
        "Egress",
        BOTH,
        "BETA",
        True,
        "alpha v1.0, beta v1.6",
        "Choose the source address of Pods that leave the cluster.",
        built=True,
    ),
    Gate(
        "EgressSeparateSubnet",
        AGENT,
        "BETA",
        True,
        "alpha v1.15, beta v2.3",
        "Let Egress IPs come from another subnet than the Nodes'.",
        built=True,
        needs="Egress",
    ),
    Gate(
        "EgressTrafficShaping",
        AGENT,
        "ALPHA",
        False,
        "alpha v1.14",
        "Limit the bandwidth of an Egress.",
        built=True,
        needs="Egress",
    ),
)
