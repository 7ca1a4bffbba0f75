"""Kind of ExternalIPPool, and how the API server serves it."""

from __future__ import annotations

from antrea.apis.crd import pool, v1alpha2
from antrea.apis.crd.definition import CONVERTED, POOL_COLUMNS, Crd, Version

GATES = ("Egress", "ServiceExternalIP")
"""Features that take addresses of pools."""
CRDS = (
    Crd(
        "externalippools",
        ("eip",),
        "Cluster",
        (
            Version("v1alpha2", v1alpha2.ExternalIPPool, POOL_COLUMNS, storage=False, status=True),
            Version("v1beta1", pool.ExternalIPPool, POOL_COLUMNS, status=True),
        ),
        GATES,
        CONVERTED,
        "/convert/externalippool",
    ),
)
