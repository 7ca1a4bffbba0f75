"""One row of the aggregated API: what a resource is called, what can be done with it and how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from antrea.apis.meta import ObjectMetadata

Verb = Literal["create", "delete", "get", "list", "watch"]
ZERO_TIME = "0001-01-01T00:00:00Z"

NAME_HELP = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may"
    " allow a client to request the generation of an appropriate name automatically. Name is primarily intended"
    " for creation idempotence and configuration definition. Cannot be updated. More info:"
    " https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
CREATED_HELP = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not"
    " guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It"
    " is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More"
    " info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)
"""Words of Kubernetes' own type documentation, which its default table shows."""


class Column(msgspec.Struct, frozen=True):
    """One column of `kubectl get`; `type` and `format` are OpenAPI's, a `priority` above 0 shows with -o wide only."""

    name: str
    type: Literal["string", "integer", "number", "boolean", "date"]
    cell: Callable[[Any], str | int | float | bool]
    format: str = ""
    description: str = ""
    priority: int = 0


NAME = Column("Name", "string", lambda row: row.metadata.name, "name", NAME_HELP)
CREATED_AT = Column(
    "Created At", "date", lambda row: row.metadata.creation_timestamp or ZERO_TIME, "", CREATED_HELP
)


class Subresource(msgspec.Struct, frozen=True):
    """A part of a resource with a path of its own below the object's name."""

    name: str
    kind: type[msgspec.Struct]
    verbs: tuple[Verb, ...]


class Members(msgspec.Struct, frozen=True):
    """For groups: a change is sent as the members that came and went."""

    patch: Callable[[ObjectMetadata, tuple[Any, ...], tuple[Any, ...]], msgspec.Struct]
    """The object of a MODIFIED event, from metadata, added and removed members; its class is the event's kind."""
    by_node: bool
    """Whether a watcher of one Node sees only the members on that Node."""


def identity(resource: Resource, last: Any) -> Any:
    """Return what is sent of a deleted object: its kind with name and UID."""
    meta = last.metadata
    return resource.blank(ObjectMetadata(name=meta.name, namespace=meta.namespace, uid=meta.uid))


class Resource(msgspec.Struct, frozen=True):
    """One row of the registry; its kind is the name of `struct`."""

    group: str
    version: str
    plural: str
    singular: str
    struct: type[Any]
    verbs: tuple[Verb, ...]
    namespaced: bool = False
    columns: tuple[Column, ...] = (NAME, CREATED_AT)
    """Columns of a Table; without any, no Table is sent, and kubectl makes NAME and AGE of the object itself."""
    subresources: tuple[Subresource, ...] = ()
    members: Members | None = None
    gone: Callable[[Resource, Any], Any] = identity
    """Function that returns the object of a DELETED event from the last object."""
    make: Callable[[ObjectMetadata], Any] | None = None
    """Makes an object that has metadata alone, where `struct` needs more than that."""
    stored: bool = True
    """Whether objects are published into a store; else each request is answered by the program that computes."""
    missing: str = ""
    """The word for the resource in "not found"; empty: `plural`."""

    def has_path(self, *, named: bool) -> bool:
        """Whether any method is served at the path with, or without, the name of an object."""
        return (
            not {"get", "delete"}.isdisjoint(self.verbs)
            if named
            else not {"list", "create"}.isdisjoint(self.verbs)
        )

    @property
    def kind(self) -> str:
        return self.struct.__name__

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def blank(self, metadata: ObjectMetadata) -> Any:
        """An object that has metadata alone."""
        return self.make(metadata) if self.make else self.struct(metadata=metadata)
