"""Kind of IPPool, and how the API server serves it."""

from __future__ import annotations

from antrea.apis.crd import pool, v1alpha2
from antrea.apis.crd.definition import CONVERTED, POOL_COLUMNS, Crd, Version

CRDS = (
    Crd(
        "ippools",
        ("ipp",),
        "Cluster",
        (
            Version(
                "v1alpha2",
                v1alpha2.IPPool,
                POOL_COLUMNS,
                storage=False,
                status=True,
                deprecation="crd.antrea.io/v1alpha2 IPPool is deprecated; use crd.antrea.io/v1beta1 IPPool",
            ),
            Version("v1beta1", pool.IPPool, POOL_COLUMNS, status=True),
        ),
        ("AntreaIPAM", "SecondaryNetwork"),
        CONVERTED,
        "/convert/ippool",
    ),
)
