"""Kind of Traceflow, and how the API server serves it."""

from __future__ import annotations

from antrea.apis.crd import traceflow
from antrea.apis.crd.definition import AGE, ANTREA, Column, Crd, Version

TRACE_COLUMNS = (
    Column("Phase", "string", ".status.phase", "How far it is."),
    Column("Source-Pod", "string", ".spec.source.pod", "Where the packet comes from.", 10),
    Column("Destination-Pod", "string", ".spec.destination.pod", "Where the packet goes.", 10),
    Column("Destination-IP", "string", ".spec.destination.ip", "Where the packet goes.", 10),
    Column("Live-Traffic", "boolean", ".spec.liveTraffic", "Whether the packet is of real traffic.", 10),
    Column("Dropped-Only", "boolean", ".spec.droppedOnly", "Whether only a dropped packet counts.", 10),
    Column("Timeout", "integer", ".spec.timeout", "Seconds until it fails.", 10),
    AGE,
)
CRDS = (
    Crd(
        "traceflows",
        ("tf",),
        "Cluster",
        (Version("v1beta1", traceflow.Traceflow, TRACE_COLUMNS, status=True),),
        ("Traceflow",),
        ANTREA,
    ),
)
