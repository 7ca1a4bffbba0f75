"""The chart's values.schema.json: which values there are, of which type, made of values.yaml and of the configuration's structs.

Helm checks values against it before it renders anything, so a misspelt name or a text in place of a number stops the installation.
A value that becomes a key of a configuration file has the type, the choices and the bounds of that key's field; another one has
the type of its default. What a value asks for and no program can do, and a text that is none of what its key takes, is refused with a
sentence by templates/_helpers.tpl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from antrea.config.flow_aggregator import FlowAggregatorConfig
from antrea.config.load import section_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Schema = dict[str, Any]
DIALECT = "http://json-schema.org/draft-07/schema#"
KUBERNETES = frozenset({"affinity", "extraEnv", "nodeSelector", "resources", "updateStrategy"})
"""Names of values with objects of the Kubernetes API or free keys, which kube-apiserver checks."""
IMAGES = frozenset({"image", "agentImage", "controllerImage"})
IMAGE: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "repository": {"type": "string"},
        "pullPolicy": {"enum": ["", "Always", "IfNotPresent", "Never"]},
        "tag": {"type": ["string", "number"]},
    },
}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
LABELS: Schema = {**TEXTS, "properties": {name: {"not": {}} for name in ("app", "component", "served-by")}}
"""Labels besides those by which the chart's own objects find each other."""
PODS: Schema = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+%$"}]}
OWN: Mapping[str, Schema] = {
    "annotations": TEXTS,
    "commonLabels": LABELS,
    "imagePullSecrets": {
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {"name": {"type": "string", "minLength": 1}},
        },
    },
    "labels": LABELS,
    "podAnnotations": TEXTS,
    "podDisruptionBudget": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "enable": {"type": ["boolean", "null"]},
            "maxUnavailable": PODS,
            "minAvailable": {"anyOf": [*PODS["anyOf"], {"type": "null"}]},
        },
    },
    "podLabels": LABELS,
}
"""Schemas of values by their last name whose default does not tell one."""
UPSTREAM = ("agent.antreaSysctlInit", "agent.antreaIPsec", "testing")
"""Sections of upstream's chart without a counterpart here: what they may ask for is refused by templates/_helpers.tpl."""
TYPES: Mapping[type, str] = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}


def schema_of_values(values: Mapping[str, Any], keys: Mapping[str, Any], gates: Iterable[str]) -> Schema:
    """The schema of values.yaml. `keys` has the type of the configuration's field for the path of each value that becomes one."""
    root = _object(values, keys, "")
    for path in UPSTREAM:
        *parents, name = path.split(".")
        at = root
        for parent in parents:
            at = at["properties"][parent]
        at["properties"][name] = {"type": "object"}
    root["properties"]["featureGates"] = _closed({gate: {"type": "boolean"} for gate in gates})
    root["properties"]["flowAggregator"]["properties"]["config"] = schema_of_struct(FlowAggregatorConfig)
    root["properties"]["global"] = {"type": "object"}  # Helm gives it to charts that are part of another one
    return {"$schema": DIALECT, **root}


def _closed(properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _section(properties: Schema) -> Schema:
    """A section of values.yaml; one that is null is missing, as Helm takes it away."""
    sections = sorted(name for name, schema in properties.items() if schema.get("type") == "object")
    return {**_closed(properties), **({"required": sections} if sections else {})}


def _object(values: Mapping[str, Any], keys: Mapping[str, Any], prefix: str) -> Schema:
    return _section({name: _value(name, value, keys, prefix + name) for name, value in values.items()})


def _value(name: str, value: Any, keys: Mapping[str, Any], path: str) -> Schema:
    if path in keys:
        return schema_of_type(keys[path])
    if name in IMAGES:
        return IMAGE
    if name in OWN:
        return OWN[name]
    if name in KUBERNETES:
        return {"type": "object"}
    if isinstance(value, dict):
        return _object(value, keys, f"{path}.")
    return {"type": TYPES[type(value)]}


def schema_of_struct(kind: type[msgspec.Struct]) -> Schema:
    """The keys of a configuration file or of a section of it, with no others."""
    return _closed({field.encode_name: schema_of_type(field.type) for field in msgspec.structs.fields(kind)})


def schema_of_type(kind: Any) -> Schema:
    """The schema of one key: also what leaves its default, which is an empty text, null, or 0 where 0 is no value."""
    section, mark = section_of(kind)
    if section:
        inside = schema_of_struct(section)
        return {"type": "array", "items": inside} if mark else inside
    if get_origin(kind) is tuple:
        return {"type": "array", "items": schema_of_type(get_args(kind)[0])}
    schema = msgspec.json.schema(kind)
    if "anyOf" in schema:  # a type or None
        return {
            "anyOf": [schema_of_type(one) for one in get_args(kind) if one is not type(None)]
            + [{"type": "null"}]
        }
    schema.pop("$defs", None)
    if "enum" in schema and all(isinstance(one, str) for one in schema["enum"]):
        return {"enum": sorted({"", *schema["enum"]})}
    if "minimum" in schema and 0 in _unset(kind):
        schema["minimum"] = min(0, schema["minimum"])
    return schema


def _unset(kind: Any) -> tuple[Any, ...]:
    metas = [part for part in get_args(kind)[1:] if isinstance(part, msgspec.Meta)]
    return tuple(value for meta in metas for value in (meta.extra or {}).get("unset", ()))
