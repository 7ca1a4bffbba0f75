"""Fields that another version of a kind lacks travel in an annotation of it, so that reading and writing it back loses nothing.

Only objects of the older version, which exist on the wire and not in the store, have those of the newer one. What comes
back in them is a user's word by then, and the schema has not seen it: it is checked here.
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
"""Of objects of the older version: what it lacks."""
OLDER = "crd.antrea.io/v1alpha2-fields"
"""Of objects of the newer version: what that one lacks."""
PATH = f"metadata.annotations[{ANNOTATION}]"


Converter: TypeAlias = Callable[[Spec, dict[str, str]], Spec]
"""From a spec to the other version's; annotations may change in place."""


class Conversion(msgspec.Struct, frozen=True):
    """A kind of crd.antrea.io that has two versions, and how its spec becomes the newer and the older one's."""

    kind: str
    newer: Converter
    older: Converter


class Fields(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """All fields that can be carried."""

    bandwidth: Bandwidth | None = None
    subnet_info: SubnetInfo | None = None


def carry(fields: Spec, annotations: dict[str, str], name: str = ANNOTATION) -> None:
    """Put the fields into the annotation `name`; without any it is none, also if a user has put one there."""
    annotations.pop(name, None)
    if fields:
        annotations[name] = msgspec.json.encode(fields, order="sorted").decode()


def carried(annotations: dict[str, str]) -> Spec:
    """Take the fields out of the annotation. Raises Invalid if they are not of their types or out of range."""
    text = annotations.pop(ANNOTATION, "{}")
    subnet = decode_json(text, Fields, PATH).subnet_info
    found = decode_json(text, Spec, PATH)
    if subnet and not (0 <= subnet.vlan <= 4094 and 1 <= subnet.prefix_length <= 127):
        raise Invalid(PATH, "subnetInfo: vlan must be 0 to 4094, prefixLength 1 to 127")
    return {name: value for name, value in found.items() if value is not None}


def added(spec: Spec, annotations: dict[str, str], name: str) -> Spec:
    """The spec with field `name` if it was carried. Raises Invalid as `carried` does."""
    kept = carried(annotations)
    return {**spec, name: kept[name]} if name in kept else spec


def removed(spec: Spec, annotations: dict[str, str], name: str) -> Spec:
    """The spec without field `name`, which is carried from here on."""
    carry({name: spec[name]} if name in spec else {}, annotations)
    return {other: value for other, value in spec.items() if other != name}
