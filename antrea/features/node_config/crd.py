"""Kind of AntreaNodeConfig, and how the API server serves it."""

from __future__ import annotations

from antrea.apis.crd import node_config
from antrea.apis.crd.definition import AGE, ANTREA, Crd, Version

CRDS = (
    Crd(
        "antreanodeconfigs",
        ("anc",),
        "Cluster",
        (Version("v1alpha1", node_config.AntreaNodeConfig, (AGE,)),),
        ("AntreaNodeConfig",),
        ANTREA,
    ),
)
