"""Kind of flow export, and how the API server serves it."""

from __future__ import annotations

from antrea.apis.crd import flow_export
from antrea.apis.crd.definition import ANTREA, Column, Crd, Version

CRDS = (
    Crd(
        "flowexporterdestinations",
        ("flowexporterdest",),
        "Cluster",
        (
            Version(
                "v1alpha1",
                flow_export.FlowExporterDestination,
                (Column("Address:Port", "string", ".spec.address", "The collector."),),
            ),
        ),
        ("FlowExporter",),
        ANTREA,
    ),
)
