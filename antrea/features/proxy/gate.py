"""Feature gates of AntreaProxy."""

from __future__ import annotations

from antrea.features.framework.gate_row import AGENT, Gate

GATES = (
    Gate(
        "AntreaProxy",
        AGENT,
        "GA",
        True,
        "alpha v0.8, beta v0.11, GA v1.14",
        "Serve ClusterIPs in OVS.",
        built=True,
    ),
    Gate(
        "CleanupStaleUDPSvcConntrack",
        AGENT,
        "BETA",
        True,
        "alpha v1.13, beta v2.1",
        "Forget UDP connections to endpoints that are gone.",
        built=True,
        needs="AntreaProxy",
    ),
    Gate(
        "EndpointSlice",
        AGENT,
        "GA",
        True,
        "alpha v0.13, beta v1.11, GA v1.14",
        "Read endpoints from EndpointSlices.",
        built=True,
        locked=True,
    ),
    Gate(
        "LoadBalancerModeDSR",
        AGENT,
        "ALPHA",
        False,
        "alpha v1.13",
        "Let endpoints on other Nodes answer clients directly.",
        built=True,
        needs="AntreaProxy",
    ),
    Gate(
        "PreferSameTrafficDistribution",
        AGENT,
        "ALPHA",
        False,
        "alpha v2.5",
        "Honour PreferSameZone and PreferSameNode of Services.",
        built=True,
        needs="AntreaProxy",
    ),
    Gate(
        "ServiceTrafficDistribution",
        AGENT,
        "GA",
        True,
        "beta v2.2, GA v2.5",
        "Honour trafficDistribution of Services.",
        locked=True,
        built=True,
    ),
    Gate(
        "TopologyAwareHints",
        AGENT,
        "GA",
        True,
        "alpha v1.8, beta v1.12, GA v2.5",
        "Honour topology hints of endpoints.",
        locked=True,
        built=True,
    ),
)
