"""Kind of NodeLatencyMonitor, and how the API server serves it."""

from __future__ import annotations

from antrea.apis.crd import latency
from antrea.apis.crd.definition import AGE, Column, Crd, Version

CRDS = (
    Crd(
        "nodelatencymonitors",
        ("nlm",),
        "Cluster",
        (
            Version(
                "v1alpha1",
                latency.NodeLatencyMonitor,
                (
                    Column(
                        "PingIntervalSeconds", "string", ".spec.pingIntervalSeconds", "Time between pings."
                    ),
                    AGE,
                ),
                only_name="default",
            ),
        ),
        ("NodeLatencyMonitor",),
    ),
)
