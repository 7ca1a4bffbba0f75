"""Annotation that carries fields which another version of a kind lacks, so that reading and writing it back loses nothing.

Only objects of the older version, which exist on the wire and not in the store, have the fields of the newer one. A user may
have changed them when they come back, and the schema has not checked them: it is done here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from antrea.apis.crd.egress import Bandwidth
from antrea.apis.crd.pool import SubnetInfo
from antrea.decoding import decode_json
from antrea.errors import Invalid

Spec: TypeAlias = dict[str, Any]
ANNOTATION = "crd.antrea.io/v1beta1-fields"
"""Annotation on objects of the older version, with the fields that it lacks."""
OLDER = "crd.antrea.io/v1alpha2-fields"
"""Annotation on objects of the newer version, with the fields that it lacks."""
PATH = f"metadata.annotations[{ANNOTATION}]"


Converter: TypeAlias = Callable[[Spec, dict[str, str]], Spec]
"""Function from a spec to the other version's; it may change the annotations in place."""


class Conversion(msgspec.Struct, frozen=True):
    """Kind of crd.antrea.io with two versions, and the converters of its spec to the newer and the older one."""

    kind: str
    newer: Converter
    older: Converter


class Fields(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """All fields that can be carried."""

    bandwidth: Bandwidth | None = None
    subnet_info: SubnetInfo | None = None


def carry(fields: Spec, annotations: dict[str, str], name: str = ANNOTATION) -> None:
    """Put the fields into the annotation `name`; without fields the annotation is removed, even if a user has set it."""
    annotations.pop(name, None)
    if fields:
        annotations[name] = msgspec.json.encode(fields, order="sorted").decode()


def carried(annotations: dict[str, str]) -> Spec:
    """Take the fields out of the annotation. Raises Invalid if they are not of their types or out of range."""
    text = annotations.pop(ANNOTATION, "{}")
    subnet = decode_json(text, Fields, PATH).subnet_info
    fields = decode_json(text, Spec, PATH)
    if subnet and not (0 <= subnet.vlan <= 4094 and 1 <= subnet.prefix_length <= 127):
        raise Invalid(PATH, "subnetInfo: vlan must be 0 to 4094, prefixLength 1 to 127")
    return {name: value for name, value in fields.items() if value is not None}


def added(spec: Spec, annotations: dict[str, str], name: str) -> Spec:
    """Return the spec with field `name` if it was carried. Raises Invalid as `carried` does."""
    kept = carried(annotations)
    return {**spec, name: kept[name]} if name in kept else spec


def removed(spec: Spec, annotations: dict[str, str], name: str) -> Spec:
    """Return the spec without field `name`, which the annotation carries."""
    carry({name: spec[name]} if name in spec else {}, annotations)
    return {other: value for other, value in spec.items() if other != name}
