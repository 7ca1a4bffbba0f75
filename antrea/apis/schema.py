"""Structural OpenAPI v3 schemas of msgspec Structs, for CRDs and for OpenAPI documents of the aggregated API.

The type gives type, items, properties and enum; a field without a default is required; `doc` in an Annotated gives the
rest. Constraints are the schema's alone, and decoding does not repeat them: the API server has judged what we read,
its regular expressions are not Python's, and what was stored before a constraint came must still be read.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

Schema: TypeAlias = dict[str, Any]
Ref: TypeAlias = Callable[[type], str]
NONE: Mapping[str, Any] = types.MappingProxyType({})
PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "format": "byte"},
}


class Extra(msgspec.Struct, frozen=True):
    """Parts of a schema that a type cannot express. Paths are dotted JSON names; lists on the way are passed through."""

    keywords: Mapping[str, Any] = {}
    """Set in the schema of this place, such as {"minimum": 1}."""
    without: tuple[str, ...] = ()
    """Paths of properties that do not exist at this place."""
    at: Mapping[str, Mapping[str, Any]] = {}
    """Path of a property: keywords that are set there at this place; one that is None is removed."""


def doc(
    description: str = "",
    keywords: Mapping[str, Any] = NONE,
    *,
    without: tuple[str, ...] = (),
    at: Mapping[str, Mapping[str, Any]] = NONE,
    **more: Any,
) -> msgspec.Meta:
    """A field's sentence and extras: `Annotated[int, doc("Port of the peer.", minimum=1)]`."""
    extra = Extra({**keywords, **more}, without, at)
    return msgspec.Meta(description=description or None, extra={"schema": extra})


def cel(rule: str, message: str) -> Schema:
    """The keyword of one CEL rule."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message}]}


def one_of(*alternatives: str | tuple[str, ...]) -> Schema:
    """The keyword that wants exactly one of these properties, or of these groups of properties."""
    return {
        "oneOf": [{"required": [names] if isinstance(names, str) else [*names]} for names in alternatives]
    }


def schema_of(kind: type[msgspec.Struct], *, ref: Ref | None = None) -> Schema:
    """The schema of `kind`. Structs within are inlined, or with `ref` become {"$ref": ref(struct)}.

    Its own extras stand in the class attribute `schema_keywords`, its description is the first paragraph of its
    docstring. Raises TypeError for an annotation that has no schema.
    """
    hints = get_type_hints(kind, include_extras=True)
    fields = msgspec.structs.fields(kind)
    schema: Schema = {"type": "object"}
    if kind.__doc__:
        schema["description"] = " ".join(kind.__doc__.split("\n\n")[0].split())
    required = [field.encode_name for field in fields if field.required]
    if required:
        schema["required"] = required
    if fields:
        schema["properties"] = {field.encode_name: _schema(hints[field.name], ref) for field in fields}
    return {**schema, **copy.deepcopy(getattr(kind, "schema_keywords", {}))}


def place(schema: Schema, path: str) -> Schema:
    """The schema of the property at `path` beneath `schema`; "ports[]" is an element of ports. KeyError: there is none."""
    for name in path.split("."):
        schema = _element(schema)["properties"][name.removesuffix("[]")]
    return _element(schema) if path.endswith("[]") else schema


def _element(schema: Schema) -> Schema:
    while "items" in schema:
        schema = schema["items"]
    return schema


def _schema(hint: Any, ref: Ref | None) -> Schema:
    if get_origin(hint) is Annotated:
        kind, *metas = get_args(hint)
        schema = _schema(kind, ref)
        for meta in metas:
            _add(schema, meta)
        return schema
    if hint in PLAIN:
        return dict(PLAIN[hint])
    if hint is Any:
        return {"x-kubernetes-preserve-unknown-fields": True} if ref is None else {}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return schema_of(hint) if ref is None else {"$ref": ref(hint)}
    return _composed(hint, ref)


def _composed(hint: Any, ref: Ref | None) -> Schema:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        (kind,) = {type(value) for value in args}
        return {**PLAIN[kind], "enum": [*args]}
    if origin in (tuple, list, frozenset):
        return {"type": "array", "items": _schema(args[0], ref)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(args[1], ref)}
    if origin in (Union, types.UnionType):
        kinds = [arg for arg in args if arg is not type(None)]
        if set(kinds) == {int, str}:
            return {"x-kubernetes-int-or-string": True}
        if set(kinds) == {int, float}:
            return dict(PLAIN[float])
        if len(kinds) == 1:
            return _schema(kinds[0], ref)
    raise TypeError(f"{hint!r} has no schema")


def _add(schema: Schema, meta: Any) -> None:
    if meta.description:
        schema["description"] = meta.description
    extra = (meta.extra or {}).get("schema", Extra())
    schema.update(copy.deepcopy({**extra.keywords}))
    for path in extra.without:
        *above, name = path.split(".")
        owner = place(schema, ".".join(above)) if above else schema
        del _element(owner)["properties"][name]
    for path, keywords in extra.at.items():
        there = place(schema, path)
        there.update(copy.deepcopy({**keywords}))
        for name in [name for name, value in keywords.items() if value is None]:
            del there[name]
