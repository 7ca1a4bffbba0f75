"""Annotations of upstream for features that are not built yet, and the warning for their author.

A row counts as long as the gate of its feature is not built: one that is built has to lose its rows here, which a test verifies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.features.framework.gate import GATES

if TYPE_CHECKING:
    from collections.abc import Mapping


class UnbuiltAnnotation(NamedTuple):
    """On objects of `kind`, of the core group; `without` is a sentence about what does not happen."""

    kind: str
    name: str
    gate: str
    without: str


_NO_IPAM = "addresses come from the Node's Pod CIDRs"
ANNOTATIONS = (
    UnbuiltAnnotation("Pod", "ipam.antrea.io/ippools", "AntreaIPAM", _NO_IPAM),
    UnbuiltAnnotation("Pod", "ipam.antrea.io/pod-ips", "AntreaIPAM", _NO_IPAM),
    UnbuiltAnnotation("Namespace", "ipam.antrea.io/ippools", "AntreaIPAM", _NO_IPAM),
)
KINDS = frozenset(row.kind for row in ANNOTATIONS)
_BUILT = {gate.name: gate.built for gate in GATES}


def unbuilt(kind: str, annotations: Mapping[str, str]) -> str:
    """The warning about an object with these; empty: none."""
    return "; ".join(
        f"annotation {row.name}: the feature {row.gate} is not built yet: {row.without}"
        for row in ANNOTATIONS
        if row.kind == kind and row.name in annotations and not _BUILT[row.gate]
    )
