"""Watches of agents at the controller, and the facts that their events mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from antrea.apis.controlplane import GroupMember
from antrea.apis.null import without_nulls
from antrea.decoding import decode_json, decode_tree
from antrea.errors import Invalid
from antrea.facts.fact import Fact


class WatchedEvent(NamedTuple):
    """Event with the object's name, rows to add and, in a partial update, rows to remove."""

    name: str
    added: list[Fact]
    removed: list[Fact]


class ObjectKind(msgspec.Struct, frozen=True):
    """Kind of objects that are sent whole, each a row of `fact`."""

    plural: str
    fact: type[Fact]
    kind: type
    row: Callable[[Any], Fact]
    saved: bool = True
    """Whether its rows may be written to disk, for a start without antrea-controller: never what has credentials."""

    @property
    def facts(self) -> tuple[type[Fact], ...]:
        """Kinds of rows that come only from this watch."""
        return (self.fact,)

    def read(self, data: msgspec.Raw) -> WatchedEvent:
        """Decode an event. Raises Invalid."""
        try:
            shown: Any = decode_json(data, self.kind, self.plural)
        except Invalid as error:
            if not isinstance(error.__cause__, msgspec.ValidationError):
                raise
            # a controller of upstream writes a null for a time that is not said
            tree = without_nulls(decode_json(data, object, self.plural))
            shown = decode_tree(tree, self.kind, self.plural)
        return WatchedEvent(shown.metadata.name, [self.row(shown)], [])


class GroupKind(msgspec.Struct, frozen=True):
    """Kind of groups: each member on this Node is a row of `fact`, each group one of `head`, if a unit reads it."""

    plural: str
    fact: type[Fact]
    row: Callable[[str, GroupMember], Fact]
    head: type[Any] | None = None
    """Kind of rows whose one field is the group's name."""
    saved: bool = True
    """See ObjectKind."""

    @property
    def facts(self) -> tuple[type[Fact], ...]:
        """Kinds of rows that come only from this watch."""
        return (self.fact, self.head) if self.head else (self.fact,)

    def read(self, data: msgspec.Raw) -> WatchedEvent:
        """Decode an event. Raises Invalid."""
        group = decode_json(data, _Group, self.plural)
        name = group.metadata.name or group.name
        members = (*group.members, *group.added, *(group.egress_added or ()))
        heads = [self.head(name)] if self.head else []
        added = [*heads, *(self.row(name, member) for member in members)]
        removed = (*group.removed, *(group.egress_removed or ()))
        return WatchedEvent(name, added, [self.row(name, member) for member in removed])


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""


class _Group(msgspec.Struct, frozen=True):
    """Group, or its changes; EgressGroupPatch uses other names for the same fields."""

    metadata: _Meta = _Meta()
    name: str = ""
    members: tuple[GroupMember, ...] = msgspec.field(default=(), name="groupMembers")
    added: tuple[GroupMember, ...] = msgspec.field(default=(), name="addedGroupMembers")
    removed: tuple[GroupMember, ...] = msgspec.field(default=(), name="removedGroupMembers")
    egress_added: tuple[GroupMember, ...] | None = msgspec.field(default=None, name="AddedGroupMembers")
    egress_removed: tuple[GroupMember, ...] | None = msgspec.field(default=None, name="RemovedGroupMembers")
