"""OpenAPI v2 and v3 documents of all resources, for `kubectl explain`, validation and completion.

kubernetes.json has the definitions that are Kubernetes' own, as Kubernetes 1.34 (Apache-2.0) publishes them in
api/openapi-spec/swagger.json: kube-apiserver shows ours beside its own as NAME_v2 if a single word differs.

Source: https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.meta import ListMetadata
from antrea.apis.schema import schema_of
from antrea.outside.apiserver.negotiation import JSON, YAML

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from antrea.apis.resource import Resource

    Name = Callable[[type[Any]], str]

INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
V2, V3 = "#/definitions/", "#/components/schemas/"
KUBERNETES: Mapping[str, bytes] = msgspec.json.decode(
    files(__package__).joinpath("kubernetes.json").read_bytes(), type=dict[str, msgspec.Raw]
)
"""Definitions by name, in JSON with references of v2."""
OWN: Mapping[str, Any] = {
    "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
    "kind": {"type": "string", "description": "What this object is."},
}
QUERY = {
    "allowWatchBookmarks": ("boolean", "Whether bookmarks are understood."),
    "continue": ("string", "Token of the next page; lists here have one page."),
    "fieldSelector": (
        "string",
        "Objects to choose by metadata.name, or by the Node that needs them (nodeName).",
    ),
    "labelSelector": ("string", "Objects to choose by their labels."),
    "limit": ("integer", "Objects on a page; lists here have one page."),
    "resourceVersion": ("string", "Not looked at: lists and watches begin with what there is now."),
    "resourceVersionMatch": ("string", "How resourceVersion is meant."),
    "sendInitialEvents": ("boolean", "Whether the bookmark after the first objects is to say so."),
    "timeoutSeconds": ("integer", "How long to watch."),
    "watch": ("boolean", "Whether changes are to be sent as they happen."),
}
_METHODS = {"list": "get", "get": "get", "create": "post", "delete": "delete", "watch": "get"}
_WORDS = {"get": "read"}


def documents(resources: Iterable[Resource], name: Name, version: str) -> dict[str, bytes]:
    """Answers by path: /openapi/v2, /openapi/v3 and those that it lists. `name` gives the definition of a struct."""
    rows = list(resources)
    by_path: dict[str, bytes] = {}
    index: dict[str, Any] = {}
    for (group, of), some in groupby(rows, lambda row: (row.group, row.version)):
        body = msgspec.json.encode(_v3(list(some), name, version))
        path = f"/openapi/v3/apis/{group}/{of}"
        by_path[path] = body
        tag = hashlib.sha256(body).hexdigest().upper()
        index[f"apis/{group}/{of}"] = {"serverRelativeURL": f"{path}?hash={tag}"}
    by_path["/openapi/v3"] = msgspec.json.encode({"paths": index})
    by_path["/openapi/v2"] = msgspec.json.encode(_v2(rows, name, version))
    return by_path


def _v3(rows: list[Resource], name: Name, version: str) -> dict[str, Any]:
    return {
        "openapi": "3.0.0",
        "info": {"title": "Antrea", "version": version},
        "paths": _paths(rows, name, _operation_v3, _query_v3),
        "components": {"schemas": _schemas(rows, name, V3)},
    }


def _v2(rows: list[Resource], name: Name, version: str) -> dict[str, Any]:
    return {
        "swagger": "2.0",
        "info": {"title": "Antrea", "version": version},
        "paths": _paths(rows, name, _operation_v2, _query_v2),
        "definitions": _schemas(rows, name, V2),
    }


def _schemas(rows: list[Resource], name: Name, prefix: str) -> dict[str, Any]:
    """Every struct that a resource is, or is made of, once."""
    schemas = {INT_OR_STRING: _int_or_string_itself(prefix)}
    waiting: list[type[Any]] = [ListMetadata]

    def ref(struct: type[Any]) -> str:
        if name(struct) not in schemas:
            waiting.append(struct)
        return prefix + name(struct)

    for row in rows:
        for kind in (row.struct, *(part.kind for part in row.subresources)):
            schemas[name(kind)] = _top(_schema(kind, ref), _kind(row, kind.__name__))
        if "list" in row.verbs:
            schemas[f"{name(row.struct)}List"] = _list(row, prefix, name)
    while waiting:
        struct = waiting.pop()
        if name(struct) in KUBERNETES:
            schemas |= _kubernetes(name(struct), prefix)
        elif name(struct) not in schemas:
            schemas[name(struct)] = _schema(struct, ref)
    return {key: _adjusted(schema, prefix) for key, schema in sorted(schemas.items())}


def _int_or_string_itself(prefix: str) -> dict[str, Any]:
    schema: dict[str, Any] = _kubernetes(INT_OR_STRING, prefix)[INT_OR_STRING]
    if prefix == V2:
        return schema
    return {**_without(schema, "type"), "oneOf": [{"type": "integer"}, {"type": "string"}]}


def _kubernetes(name: str, prefix: str) -> dict[str, Any]:
    """A definition of Kubernetes with those that it refers to."""
    text = bytes(KUBERNETES[name])
    schemas = {name: msgspec.json.decode(text.replace(V2.encode(), prefix.encode()))}
    for other in re.findall(rb'"' + V2.encode() + rb'([^"]+)"', text):
        schemas |= _kubernetes(other.decode(), prefix)
    return schemas


def _without(schema: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}


def _schema(struct: type[Any], ref: Callable[[type], str]) -> dict[str, Any]:
    """Objects within that we always send are not for clients to give, unless the struct itself requires them."""
    schema = schema_of(struct, ref=ref)
    if "required" not in getattr(struct, "schema_keywords", {}):
        given = {
            key
            for key, property_schema in schema.get("properties", {}).items()
            if "$ref" not in property_schema
        }
        schema["required"] = [key for key in schema.get("required", ()) if key in given]
    return schema


def _top(schema: dict[str, Any], kind: dict[str, str]) -> dict[str, Any]:
    properties = {**OWN, **schema.get("properties", {})}
    return {**schema, "properties": properties, "x-kubernetes-group-version-kind": [kind]}


def _list(row: Resource, prefix: str, name: Name) -> dict[str, Any]:
    properties = {
        "metadata": {"$ref": prefix + name(ListMetadata)},
        "items": {"type": "array", "items": {"$ref": prefix + name(row.struct)}},
    }
    schema = {"type": "object", "description": f"All objects of kind {row.kind}.", "properties": properties}
    return {**_top(schema, _kind(row, f"{row.kind}List")), "required": ["items"]}


def _kind(row: Resource, kind: str) -> dict[str, str]:
    return {"group": row.group, "version": row.version, "kind": kind}


def _adjusted(schema: dict[str, Any], prefix: str) -> dict[str, Any]:
    """A number or a text has a definition of its own."""
    properties = {
        key: _with_descriptions(_int_or_string(property_schema, prefix), prefix)
        for key, property_schema in schema.get("properties", {}).items()
    }
    required = schema.get("required", ())
    return {
        **_without(schema, "properties", "required"),
        **({"required": [*required]} if required else {}),
        **({"properties": dict(sorted(properties.items()))} if properties else {}),
    }


def _int_or_string(schema: dict[str, Any], prefix: str) -> dict[str, Any]:
    if "x-kubernetes-int-or-string" not in schema:
        return schema
    return {**_without(schema, "x-kubernetes-int-or-string"), "$ref": prefix + INT_OR_STRING}


def _with_descriptions(schema: dict[str, Any], prefix: str) -> dict[str, Any]:
    """A reference with a sentence of its own needs a wrapper in v3; in v2 the sentence stands beside it."""
    if "$ref" not in schema or prefix == V2:
        return schema
    return {**_without(schema, "$ref"), "allOf": [{"$ref": schema["$ref"]}]}


def _paths(rows: list[Resource], name: Name, operation: Any, query: Any) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for row in rows:
        where = f"/apis/{row.group}/{row.version}"
        inside = f"{where}/namespaces/{{namespace}}" if row.namespaced else where
        for verb in row.verbs:
            if verb == "watch":
                continue
            path = f"{inside}/{row.plural}" + ("/{name}" if verb in ("get", "delete") else "")
            kind = f"{name(row.struct)}List" if verb == "list" else name(row.struct)
            paths.setdefault(path, {})[_METHODS[verb]] = operation(row, verb, kind, "")
            if verb == "list":
                paths[path]["parameters"] = query(path)
        for part in row.subresources:
            path = f"{inside}/{row.plural}/{{name}}/{part.name}"
            for verb in part.verbs:
                paths.setdefault(path, {})[_METHODS[verb]] = operation(row, verb, name(part.kind), part.name)
        if row.namespaced and "list" in row.verbs:
            path = f"{where}/{row.plural}"
            paths[path] = {"get": operation(row, "list", f"{name(row.struct)}List", "forAllNamespaces")}
    for path, operations in paths.items():
        operations["parameters"] = [*operations.get("parameters", ()), *query(path, inside=True)]
    return paths


def _operation(row: Resource, verb: str, part: str) -> dict[str, Any]:
    group = "".join(word.capitalize() for word in row.group.replace(".", " ").split())
    scope = "Namespaced" if row.namespaced and part != "forAllNamespaces" else ""
    tail = part[:1].upper() + part[1:]
    word = _WORDS.get(verb, verb)
    return {
        "description": f"{word} {f'{part} of ' if part else ''}{row.kind}",
        "operationId": f"{word}{group}{row.version.capitalize()}{scope}{row.kind}{tail}",
        "tags": [f"{group[0].lower()}{group[1:]}_{row.version}"],
        "x-kubernetes-action": {"create": "post"}.get(verb, verb),
        "x-kubernetes-group-version-kind": _kind(row, row.kind),
    }


def _operation_v3(row: Resource, verb: str, kind: str, part: str) -> dict[str, Any]:
    schema = {"schema": {"$ref": V3 + kind}}
    operation = _operation(row, verb, part)
    if verb == "create":
        operation["requestBody"] = {"content": {"*/*": schema}, "required": True}
    content = dict.fromkeys((JSON, YAML), schema)
    code = "201" if verb == "create" else "200"
    return {**operation, "responses": {code: {"description": "OK", "content": content}}}


def _operation_v2(row: Resource, verb: str, kind: str, part: str) -> dict[str, Any]:
    schema = {"schema": {"$ref": V2 + kind}}
    operation = _operation(row, verb, part)
    if verb == "create":
        operation["parameters"] = [{"name": "body", "in": "body", "required": True, **schema}]
    code = "201" if verb == "create" else "200"
    return {
        **operation,
        "consumes": [JSON, YAML],
        "produces": [JSON, YAML],
        "schemes": ["https"],
        "responses": {code: {"description": "OK", **schema}},
    }


def _given(path: str, *, inside: bool) -> list[tuple[str, str, str, str]]:
    """Name, place, type and sentence of each parameter."""
    if not inside:
        return [(key, "query", kind, description) for key, (kind, description) in QUERY.items()]
    descriptions = {"name": "Name of the object.", "namespace": "Namespace of the object."}
    return [(key, "path", "string", text) for key, text in descriptions.items() if f"{{{key}}}" in path]


def _query_v3(path: str, *, inside: bool = False) -> list[dict[str, Any]]:
    return [
        {
            "name": key,
            "in": place,
            "description": description,
            "schema": {"type": kind, "uniqueItems": True},
            **({"required": True} if place == "path" else {}),
        }
        for key, place, kind, description in _given(path, inside=inside)
    ]


def _query_v2(path: str, *, inside: bool = False) -> list[dict[str, Any]]:
    return [
        {
            "name": key,
            "in": place,
            "description": description,
            "type": kind,
            "uniqueItems": True,
            **({"required": True} if place == "path" else {}),
        }
        for key, place, kind, description in _given(path, inside=inside)
    ]
