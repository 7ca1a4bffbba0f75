"""Metadata of every object of an aggregated API, with all fields that `kubectl explain` shows.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from antrea.apis.schema import doc

Int32 = Annotated[int, doc(format="int32")]
Int64 = Annotated[int, doc(format="int64")]
Number: TypeAlias = int | float
"""A floating-point number as Go writes it: a whole one without a fraction. Make it with `as_number`."""


def as_number(number: float) -> Number:
    """The same number, which JSON shows without a fraction if it has none."""
    return int(number) if float(number).is_integer() else number


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A field with a default is left out while it has it; one without a default is always on the wire.

    The garbage collector does not visit these objects, which saves 16 bytes in each: they are trees.
    """


class OwnerReference(Wire, frozen=True, kw_only=True):
    """An object that this one belongs to."""

    api_version: Annotated[str, Meta(description="API version of the owner.")]
    kind: Annotated[str, Meta(description="Kind of the owner.")]
    name: Annotated[str, Meta(description="Name of the owner.")]
    uid: Annotated[str, Meta(description="UID of the owner.")]
    block_owner_deletion: Annotated[
        bool, Meta(description="Whether the owner waits in foreground deletion until this object is gone.")
    ] = False
    controller: Annotated[
        bool, Meta(description="Whether this owner is the one that manages the object.")
    ] = False


class ManagedFieldsEntry(Wire, frozen=True, kw_only=True):
    """Manager and the fields that it set by server-side apply."""

    api_version: str = ""
    fields_type: str = ""
    fields_v1: dict[str, Any] = {}
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str = ""


class ObjectMetadata(Wire, frozen=True, kw_only=True):
    """Name and identity of an object; times are RFC 3339 in UTC."""

    name: Annotated[
        str, Meta(description="Unique among objects of this kind, within a Namespace if they have one.")
    ] = ""
    generate_name: Annotated[str, Meta(description="Beginning of a name that the server completes.")] = ""
    namespace: Annotated[
        str, Meta(description="Namespace of the object; empty for what belongs to the cluster.")
    ] = ""
    self_link: Annotated[str, Meta(description="No longer filled in.")] = ""
    uid: Annotated[str, Meta(description="Differs between all objects that ever had this name.")] = ""
    resource_version: Annotated[str, Meta(description="Version of the store; an opaque text.")] = ""
    generation: Annotated[Int64, Meta(description="Grows with every change of what is wanted.")] = 0
    creation_timestamp: Annotated[str, Meta(description="When the object was made.")] = ""
    deletion_timestamp: Annotated[str, Meta(description="When the object is to be removed.")] = ""
    deletion_grace_period_seconds: Annotated[Int64, Meta(description="Seconds given to end in peace.")] = 0
    labels: Annotated[dict[str, str], Meta(description="What selectors look at.")] = {}
    annotations: Annotated[dict[str, str], Meta(description="What tools attach.")] = {}
    owner_references: Annotated[
        tuple[OwnerReference, ...],
        Meta(description="What this object belongs to; it goes when all of these are gone."),
    ] = ()
    finalizers: Annotated[tuple[str, ...], Meta(description="What must be done before the object goes.")] = ()
    managed_fields: Annotated[tuple[ManagedFieldsEntry, ...], Meta(description="Who set which fields.")] = ()


class ListMetadata(Wire, frozen=True, kw_only=True):
    """Where a list stands."""

    continue_: Annotated[str, Meta(description="Token of the next page; empty on the last.")] = msgspec.field(
        default="", name="continue"
    )
    remaining_item_count: Annotated[
        Int64, Meta(description="How many objects the pages after this one have.")
    ] = 0
    resource_version: Annotated[str, Meta(description="Version of the store when it was listed.")] = ""
    self_link: Annotated[str, Meta(description="No longer filled in.")] = ""


class StatusCause(Wire, frozen=True, kw_only=True):
    """One reason of a refusal."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Wire, frozen=True, kw_only=True):
    """Object that a Status is about."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: Int32 = 0


class Status(Wire, frozen=True, kw_only=True):
    """The answer to what is refused, or to a success without an object."""

    kind: str = msgspec.field(default_factory=lambda: "Status")
    api_version: str = msgspec.field(default_factory=lambda: "v1")
    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: Int32 = 0
