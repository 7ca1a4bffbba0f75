"""One object in a store: what each Node sees of it, and how it differs from what was before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from antrea.outside.apiserver.form import body

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from antrea.apis.resource import Members, Resource

Seen = tuple[Any, bytes]
"""An object with its body."""
Placed = tuple[Any, str]
"""A member of a group and a Node it is on, "" for none."""


class Change(Protocol):
    """Change that a MODIFIED event carries."""

    def seen_by(self, node: str | None) -> Seen | None:
        """The object for a watcher of `node`, None if it sees no change."""
        ...


class Row:
    """An object that is sent whole."""

    by_node = False

    def __init__(self, resource: Resource, value: Any, span: frozenset[str]) -> None:
        self.span = span
        self._resource = resource
        self._found = value
        self._body: bytes | None = None

    @classmethod
    def of(cls, resource: Resource, value: Any, span: frozenset[str], places: Sequence[str]) -> Row:
        """`places` is for groups alone."""
        del places
        return cls(resource, value, span)

    def whole(self, node: str | None) -> Seen:
        """The object as a watcher of `node` sees it, or one without a Node."""
        del node
        if self._body is None:
            self._body = body(self._found)
        return self._found, self._body

    @property
    def value(self) -> Any:
        """The whole object."""
        return self._found

    def deleted_object(self) -> Any:
        """Return the object that a DELETED event carries."""
        return self._resource.gone(self._resource, self._found)

    def since(self, before: Row) -> Change:
        """The change from `before` to this."""
        return _Same() if self._found == before._found else _Whole(self)


class _Same:
    """Only the span changed."""

    def seen_by(self, node: str | None) -> Seen | None:
        del node
        return None


class _Whole:
    def __init__(self, row: Row) -> None:
        self._row = row

    def seen_by(self, node: str | None) -> Seen | None:
        return self._row.whole(node)


class GroupRow(Row):
    """A group: its members can be changed one by one, and bodies are made on demand.

    A member may be on several Nodes: a Service is on all that serve it.
    """

    def __init__(
        self, resource: Resource, value: Any, span: frozenset[str], members: Iterable[Placed]
    ) -> None:
        if resource.members is None:
            raise TypeError(f"{resource.plural} are not groups")
        super().__init__(resource, msgspec.structs.replace(value, group_members=()), span)
        self._rule: Members = resource.members
        self.by_node = self._rule.by_node
        self.members: dict[Any, set[str]] = {}
        """Each member's Nodes, "" for none; in the order in which they came."""
        self._at: dict[str, dict[Any, None]] = {}
        for member, place in members:
            self._enter(member, place)

    @classmethod
    def of(cls, resource: Resource, value: Any, span: frozenset[str], places: Sequence[str]) -> GroupRow:
        """Raises ValueError if `places` is given and has another length than the members."""
        members = value.group_members
        return cls(resource, value, span, zip(members, places or [""] * len(members), strict=True))

    def whole(self, node: str | None) -> Seen:
        if node is None or not self.by_node:
            if self._body is None:
                self._body = body(self._with(self.members))
            return self._with(self.members), self._body
        value = self._with(self._at.get(node, ()))
        return value, body(value)

    @property
    def value(self) -> Any:
        """The group with all of its members."""
        return self._with(self.members)

    def _with(self, members: Iterable[Any]) -> Any:
        return msgspec.structs.replace(self._found, group_members=tuple(members))

    def since(self, before: Row) -> Change:
        old = before.members if isinstance(before, GroupRow) else {}
        change = MemberChange(self._rule, self._found.metadata)
        for member, places in self.members.items():
            change.add_member(member, places - old.get(member, set()), anew=member not in old)
        for member, places in old.items():
            change.remove_member(
                member, places - self.members.get(member, set()), wholly=member not in self.members
            )
        return change

    def changed(
        self, added: Iterable[Placed], removed: Iterable[Placed], span: frozenset[str]
    ) -> tuple[Row, MemberChange]:
        """Apply a change; what was before (its span and identity alone) and the change as it is sent."""
        before = Row(self._resource, self._found, self.span)
        change = MemberChange(self._rule, self._found.metadata)
        touched: dict[Any, bool] = {}
        gone: dict[Any, set[str]] = {}
        new: dict[Any, set[str]] = {}
        for member, place in removed:
            if place in self.members.get(member, ()):
                touched.setdefault(member, True)
                gone.setdefault(member, set()).add(place)
                self._leave(member, place)
        for member, place in added:
            if place not in self.members.get(member, ()):
                touched.setdefault(member, member in self.members)
                new.setdefault(member, set()).add(place)
                self._enter(member, place)
        for member, was in touched.items():
            came, went = new.get(member, set()), gone.get(member, set())
            change.add_member(member, came - went, anew=not was and member in self.members)
            change.remove_member(member, went - came, wholly=was and member not in self.members)
        self.span = span
        self._body = None
        return before, change

    def _enter(self, member: Any, place: str) -> None:
        self.members.setdefault(member, set()).add(place)
        if self.by_node:
            self._at.setdefault(place, {})[member] = None

    def _leave(self, member: Any, place: str) -> None:
        places = self.members[member]
        places.discard(place)
        if not places:
            del self.members[member]
        if self.by_node:
            here = self._at[place]
            del here[member]
            if not here:
                del self._at[place]


class MemberChange:
    """Members that came and went, on each Node and at all."""

    def __init__(self, rule: Members, meta: Any) -> None:
        self._rule = rule
        self._meta = meta
        self._all: tuple[list[Any], list[Any]] = ([], [])
        self._at: dict[str, tuple[list[Any], list[Any]]] = {}

    def add_member(self, member: Any, places: Iterable[str], *, anew: bool) -> None:
        """`anew`: it was on no Node before."""
        self._note(0, member, places, at_all=anew)

    def remove_member(self, member: Any, places: Iterable[str], *, wholly: bool) -> None:
        """`wholly`: it is on no Node any more."""
        self._note(1, member, places, at_all=wholly)

    def _note(self, which: int, member: Any, places: Iterable[str], *, at_all: bool) -> None:
        if at_all:
            self._all[which].append(member)
        if self._rule.by_node:
            for place in places:
                self._at.setdefault(place, ([], []))[which].append(member)

    def seen_by(self, node: str | None) -> Seen | None:
        """The patch, None if no member that `node` sees came or went.

        A watcher of all Nodes gets no event for a member that only moved.
        """
        everything = node is None or not self._rule.by_node
        added, removed = self._all if everything else self._at.get(node or "", ((), ()))
        if not added and not removed:
            return None
        patch = self._rule.patch(self._meta, tuple(added), tuple(removed))
        return patch, body(patch)
