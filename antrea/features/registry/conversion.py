"""Conversion of objects of crd.antrea.io between served versions; every such kind has two.

Fields that one version lacks survive the way there and back.
Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from antrea.decoding import decode_tree
from antrea.errors import Invalid
from antrea.features import FEATURES
from antrea.features.framework.conversion_annotation import Conversion, Converter, Spec
from antrea.features.framework.plug import declared

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


OLD, NEW = "crd.antrea.io/v1alpha2", "crd.antrea.io/v1beta1"
_DECLARED = declared(FEATURES, "conversion", Conversion, "CONVERSIONS")
CONVERSIONS: Mapping[str, Mapping[tuple[str, str], Converter]] = {
    conversion.kind: {(OLD, NEW): conversion.newer, (NEW, OLD): conversion.older}
    for conversion in chain.from_iterable(_DECLARED.values())
}
PATHS: Mapping[str, str] = {f"/convert/{kind.lower()}": kind for kind in CONVERSIONS}
"""Kind that each path of the webhook converts."""


def convert(kind: str, wanted: str, stored: dict[str, Any]) -> dict[str, Any]:
    """Convert the object to version `wanted`, such as crd.antrea.io/v1beta1; the given object is not changed.

    Raises Invalid for versions that are not converted and for what the wanted version cannot express; its `why` is upstream's
    sentence where upstream has one.
    """
    version = str(stored.get("apiVersion", ""))
    if version == wanted:
        raise Invalid(
            "apiVersion", f"conversion from a version to itself should not call the webhook: {wanted}"
        )
    conversion = CONVERSIONS[kind].get((version, wanted))
    if conversion is None or stored.get("kind") != kind:
        raise Invalid("apiVersion", f'unexpected conversion fromVersion "{version}" to toVersion "{wanted}"')
    metadata, spec = _metadata(stored), stored.get("spec")
    if not _is_spec(spec):
        raise Invalid("spec", "must be an object, and its ipRanges a list of objects")
    annotations = dict(metadata.pop("annotations", None) or {})
    converted = conversion(spec, annotations)
    if annotations:
        metadata["annotations"] = annotations
    return {**stored, "apiVersion": wanted, "metadata": metadata, "spec": converted}


def _is_spec(spec: Any) -> TypeGuard[Spec]:
    if not isinstance(spec, dict):
        return False
    ranges = spec.get("ipRanges") or []
    return isinstance(ranges, list) and all(isinstance(entry, dict) for entry in ranges)


def _metadata(stored: dict[str, Any]) -> dict[str, Any]:
    metadata = stored.get("metadata")
    try:
        decode_tree({} if metadata is None else metadata, _Metadata, "metadata")
    except Invalid as error:
        raise Invalid("metadata", f"metadata of an object cannot be read: {error.why}") from error
    return dict(metadata or {})
