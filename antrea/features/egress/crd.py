"""Kind of Egress, and how the API server serves it."""

from __future__ import annotations

from antrea.apis.crd import egress, v1alpha2
from antrea.apis.crd.definition import AGE, CONVERTED, Column, Crd, Version

EGRESS_COLUMNS = (
    Column("EgressIP", "string", ".status.egressIP", "Address that the traffic leaves with."),
    AGE,
    Column("Node", "string", ".status.egressNode", "Node that has the address."),
)
CRDS = (
    Crd(
        "egresses",
        ("eg",),
        "Cluster",
        (
            Version("v1alpha2", v1alpha2.Egress, EGRESS_COLUMNS, storage=False, status=True),
            Version("v1beta1", egress.Egress, EGRESS_COLUMNS, status=True),
        ),
        ("Egress",),
        CONVERTED,
        "/convert/egress",
    ),
)
