"""How an object is written: as itself, as a Table, or as metadata alone; each form is encoded once and shared.

A piece of an answer is a tuple of bytes, joined only when it is written: the body of an object is in memory once,
however many watchers have yet to get it. A body is the JSON of a Struct without its opening brace.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from antrea.apis.meta import ObjectMetadata
from antrea.apis.resource import ZERO_TIME

if TYPE_CHECKING:
    from antrea.apis.resource import Column, Resource

Pieces = tuple[bytes, ...]
Include = Literal["None", "Metadata", "Object"]
META = "meta.k8s.io/v1"


def body(value: msgspec.Struct) -> bytes:
    """The JSON of `value` without its opening brace."""
    return msgspec.json.encode(value)[1:]


def envelope(kind: str, api_version: str) -> bytes:
    """Return the beginning of an object, up to the point at which its body continues."""
    head = msgspec.json.encode({"kind": kind, "apiVersion": api_version})
    return head[:-1] + b","


def _joined(head: bytes, rest: bytes) -> bytes:
    """`head` ends in a comma, which goes if nothing follows."""
    return head[:-1] if rest == b"}" else head


class Form(Protocol):
    """One way of writing objects; equal keys share what is encoded."""

    key: str

    def event(self, kind: str, value: msgspec.Struct, rest: bytes) -> Pieces:
        """The part of a watch line after `"object":`; `rest` is the body of `value`."""
        ...

    def one(self, value: msgspec.Struct, rest: bytes) -> Pieces:
        """An answer to get or create."""
        ...

    def many(self, rows: list[tuple[msgspec.Struct, bytes]], version: str) -> Pieces:
        """An answer to list."""
        ...


class Json:
    """Objects as they are."""

    key = "json"

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._head = envelope(resource.kind, resource.api_version)

    def event(self, kind: str, _value: msgspec.Struct, rest: bytes) -> Pieces:
        head = self._head if kind == self._resource.kind else envelope(kind, self._resource.api_version)
        return (_joined(head, rest), rest)

    def one(self, value: msgspec.Struct, rest: bytes) -> Pieces:
        return self.event(type(value).__name__, value, rest)

    def many(self, rows: list[tuple[msgspec.Struct, bytes]], version: str) -> Pieces:
        meta = msgspec.json.encode({"resourceVersion": version} if version else {})
        head = envelope(f"{self._resource.kind}List", self._resource.api_version)
        pieces = [head, b'"metadata":', meta, b',"items":[']
        for number, (_, rest) in enumerate(rows):
            pieces += [b",{" if number else b"{", rest]
        return (*pieces, b"]}")


class Table:
    """Rows and columns, as kubectl asks for; column definitions come once, with the first answer or event."""

    def __init__(self, resource: Resource, include: Include = "Metadata", version: str = "v1") -> None:
        self._resource = resource
        self._include = include
        self._api_version = f"meta.k8s.io/{version}"
        self._has_columns = False
        self.key = f"table/{version}/{include}/{id(self)}"

    def event(self, _kind: str, value: msgspec.Struct, rest: bytes) -> Pieces:
        columns = None if self._has_columns else definitions(self._resource.columns)
        self._has_columns = True
        return (self._table([(value, rest)], "", columns),)

    def one(self, value: msgspec.Struct, rest: bytes) -> Pieces:
        version = getattr(getattr(value, "metadata", None), "resource_version", "")
        return (self._table([(value, rest)], version, definitions(self._resource.columns)),)

    def many(self, rows: list[tuple[msgspec.Struct, bytes]], version: str) -> Pieces:
        return (self._table(rows, version, definitions(self._resource.columns)),)

    def _table(
        self, rows: list[tuple[msgspec.Struct, bytes]], version: str, columns: list[dict[str, Any]] | None
    ) -> bytes:
        return msgspec.json.encode(
            {
                "kind": "Table",
                "apiVersion": self._api_version,
                "metadata": {"resourceVersion": version} if version else {},
                "columnDefinitions": columns,
                "rows": [self._row(value, rest) for value, rest in rows],
            }
        )

    def _row(self, value: Any, rest: bytes) -> dict[str, Any]:
        if isinstance(value, self._resource.struct):
            cells = [column.cell(value) for column in self._resource.columns]
        else:
            # the patch of a group: groups have the two default columns
            cells = [metadata_of(value).name, ZERO_TIME]
        row: dict[str, Any] = {"cells": cells}
        if self._include == "Metadata":
            row["object"] = partial(value, self._api_version)
        elif self._include == "Object":
            head = envelope(type(value).__name__, self._resource.api_version)
            row["object"] = msgspec.Raw(_joined(head, rest) + rest)
        return row


class Metadata:
    """Objects as PartialObjectMetadata."""

    key = "metadata"

    def event(self, _kind: str, value: msgspec.Struct, _rest: bytes) -> Pieces:
        return (msgspec.json.encode(partial(value, META)),)

    def one(self, value: msgspec.Struct, rest: bytes) -> Pieces:
        return self.event("", value, rest)

    def many(self, rows: list[tuple[msgspec.Struct, bytes]], version: str) -> Pieces:
        items = [partial(value, META) for value, _ in rows]
        meta = {"resourceVersion": version} if version else {}
        return (
            msgspec.json.encode(
                {"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": meta, "items": items}
            ),
        )


def metadata_of(value: Any) -> Any:
    """The metadata of an object, or that which EgressGroupPatch has inlined."""
    return value.metadata if hasattr(value, "metadata") else ObjectMetadata(name=value.name, uid=value.uid)


def partial(value: Any, api_version: str) -> dict[str, Any]:
    """Metadata alone, as an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": metadata_of(value)}


def definitions(columns: tuple[Column, ...]) -> list[dict[str, Any]]:
    """The columns as a Table describes them."""
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in columns
    ]
