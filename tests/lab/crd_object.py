"""Objects that a CRD's schema accepts, drawn from the schema itself."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]
Strategy = st.SearchStrategy[Any]
ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)
FORMATS: dict[str, Strategy] = {
    "cidr": st.sampled_from(["10.0.0.0/8", "192.168.1.128/25", "0.0.0.0/0", "fd00::/64", "::/0"]),
    "date-time": st.datetimes().map(lambda when: when.strftime("%Y-%m-%dT%H:%M:%SZ").zfill(20)),
    "duration": st.sampled_from(["2h", "30m", "1h30m", "90s"]),
    "byte": st.binary(min_size=1, max_size=9).map(lambda raw: base64.b64encode(raw).decode()),
}
SFTP = ["sftp://10.0.0.1:22/x", "sftp://host-a.example/up:2222", "sftp://[fd00::1]:22"]
TEXT = st.text(max_size=8)


def objects(schema: Schema) -> Strategy:
    """Objects of one version, without what every object has."""
    properties = {name: found for name, found in schema["properties"].items() if name != "metadata"}
    return _object({**schema, "properties": properties}).filter(_captures_of_a_pod)


def _captures_of_a_pod(found: Schema) -> bool:
    """Whether it is no PacketCapture, or obeys the rules of its spec."""
    spec = found.get("spec", {})
    if "captureConfig" not in spec:
        return True
    pods = {side for side in ("source", "destination") if "pod" in spec.get(side, {})}
    return bool(pods) and spec.get("capturePoint", min(pods)).lower() in pods


def _value(schema: Schema) -> Strategy:
    if schema.get("x-kubernetes-int-or-string"):
        return st.one_of(st.integers(0, 65535), st.text("abc-", min_size=1, max_size=5))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = {"object": _object, "array": _array, "string": _string, "integer": _integer, "number": _number}
    return kinds[schema["type"]](schema) if schema["type"] in kinds else st.booleans()


def _string(schema: Schema) -> Strategy:
    if "oneOf" in schema:
        return ADDRESSES
    if "format" in schema:
        return FORMATS[schema["format"]]
    if "pattern" in schema:
        if schema["pattern"].startswith("sftp"):
            return st.sampled_from(SFTP)  # the pattern is one of RE2's, not of Python's
        found: Strategy = st.from_regex(schema["pattern"], fullmatch=True)
        return found.filter(lambda text: "\n" not in text and len(text) <= schema.get("maxLength", 63))
    return st.text(min_size=schema.get("minLength", 0), max_size=8)


def _integer(schema: Schema) -> Strategy:
    wide = 31 if schema.get("format") == "int32" else 53
    return st.integers(schema.get("minimum", -(2**wide)), schema.get("maximum", 2**wide - 1))


def _number(schema: Schema) -> Strategy:
    return st.floats(schema["minimum"], schema["maximum"])


def _array(schema: Schema) -> Strategy:
    keys = schema.get("x-kubernetes-list-map-keys", [])

    def identity(item: Any) -> Any:
        return tuple(item[key] for key in keys) if keys else item

    least = schema.get("minItems", 0)
    most = min(schema.get("maxItems", 2), max(2, least))
    unique = identity if "x-kubernetes-list-type" in schema else None
    return st.lists(_value(schema["items"]), min_size=least, max_size=most, unique_by=unique)


def _object(schema: Schema) -> Strategy:
    if "additionalProperties" in schema:
        return st.dictionaries(TEXT, _value(schema["additionalProperties"]), max_size=2)
    properties = {name: _value(found) for name, found in schema.get("properties", {}).items()}
    return st.one_of([_chosen(schema, properties, {*names}) for names in _alternatives(schema)])


def _chosen(schema: Schema, properties: dict[str, Strategy], chosen: set[str]) -> Strategy:
    """With the required ones and the chosen ones, and any of those that no alternative speaks of."""
    required = {*schema.get("required", ()), *chosen}
    spoken = {name for names in _alternatives(schema) for name in names}
    optional = {name: found for name, found in properties.items() if name not in required | spoken}
    if schema.get("maxProperties") == 1:
        return st.one_of([st.fixed_dictionaries({name: found}) for name, found in optional.items()])
    return st.fixed_dictionaries({name: properties[name] for name in sorted(required)}, optional=optional)


def _alternatives(schema: Schema) -> list[tuple[str, ...]]:
    """Sets of properties, one of which an object has."""
    rules = " ".join(rule["rule"] for rule in schema.get("x-kubernetes-validations", ()))
    if "<= 1" in rules or "!(has(self.pod) && has(self.ip))" in rules:
        return [(), *((name,) for name in sorted(schema["properties"]))]
    choices: Any = schema.get("oneOf") or schema.get("anyOf") or []
    return [tuple(names) for choice in choices for names in _names(choice)] or [()]


def _names(choice: Schema) -> list[list[str]]:
    """The sets of properties that one alternative is content with."""
    if "anyOf" in choice:
        single = [inner["required"] for inner in choice["anyOf"]]
        return [*single, [name for names in single for name in names]]
    return [choice["required"]]
