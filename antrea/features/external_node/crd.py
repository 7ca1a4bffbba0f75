"""Kinds of ExternalNode, and how the API server serves them."""

from __future__ import annotations

from antrea.apis.crd import external
from antrea.apis.crd.definition import ANTREA, Crd, Version

CRDS = (
    Crd(
        "externalentities",
        ("ee",),
        "Namespaced",
        (Version("v1alpha2", external.ExternalEntity),),
        ("AntreaPolicy", "ExternalNode"),
        ANTREA,
    ),
    Crd(
        "externalnodes",
        ("en",),
        "Namespaced",
        (Version("v1alpha1", external.ExternalNode),),
        ("ExternalNode",),
        ANTREA,
    ),
)
