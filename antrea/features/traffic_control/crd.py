"""Kind of TrafficControl, and how the API server serves it."""

from __future__ import annotations

from antrea.apis.crd import traffic_control
from antrea.apis.crd.definition import AGE, Column, Crd, Version

CRDS = (
    Crd(
        "trafficcontrols",
        ("tc",),
        "Cluster",
        (
            Version(
                "v1alpha2",
                traffic_control.TrafficControl,
                (
                    Column("Direction", "string", ".spec.direction", "Which traffic of the Pods."),
                    Column("Action", "string", ".spec.action", "What the target gets."),
                    AGE,
                ),
                status=True,
            ),
        ),
        ("TrafficControl",),
    ),
)
