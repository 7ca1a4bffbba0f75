"""One object in a store: what each Node sees of it, and how it differs from what was before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from antrea.outside.aggregated.form import body

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from antrea.apis.resource import Members, Resource

Seen = tuple[Any, bytes]
"""An object with its body."""


class Change(Protocol):
    """What a MODIFIED event carries."""

    def seen_by(self, node: str | None) -> Seen | None:
        """The object for a watcher of `node`, None if it sees no change."""
        ...


class Row:
    """An object that is sent whole."""

    by_node = False

    def __init__(self, resource: Resource, found: Any, span: frozenset[str]) -> None:
        self.span = span
        self._resource = resource
        self._found = found
        self._body: bytes | None = None

    @classmethod
    def of(cls, resource: Resource, found: Any, span: frozenset[str], places: Sequence[str]) -> Row:
        """`places` is for groups alone."""
        del places
        return cls(resource, found, span)

    def whole(self, node: str | None) -> Seen:
        """The object as a watcher of `node` sees it, or one without a Node."""
        del node
        if self._body is None:
            self._body = body(self._found)
        return self._found, self._body

    def gone(self) -> Any:
        """What a DELETED event carries."""
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
    """A group: its members can be changed one by one, and bodies are made when somebody asks."""

    def __init__(self, resource: Resource, found: Any, span: frozenset[str], members: dict[Any, str]) -> None:
        if resource.members is None:
            raise TypeError(f"{resource.plural} are no groups")
        super().__init__(resource, msgspec.structs.replace(found, group_members=()), span)
        self._rule: Members = resource.members
        self.by_node = self._rule.by_node
        self.members = members
        """Each member's Node, "" for none; in the order in which they came."""
        self._at: dict[str, dict[Any, None]] = {}
        if self.by_node:
            for member, place in members.items():
                self._at.setdefault(place, {})[member] = None

    @classmethod
    def of(cls, resource: Resource, found: Any, span: frozenset[str], places: Sequence[str]) -> GroupRow:
        """Raises ValueError if `places` is given and has another length than the members."""
        members = found.group_members
        pairs = zip(members, places or [""] * len(members), strict=True)
        return cls(resource, found, span, dict(pairs))

    def whole(self, node: str | None) -> Seen:
        if node is None or not self.by_node:
            if self._body is None:
                self._body = body(self._with(self.members))
            return self._with(self.members), self._body
        found = self._with(self._at.get(node, ()))
        return found, body(found)

    def _with(self, members: Iterable[Any]) -> Any:
        return msgspec.structs.replace(self._found, group_members=tuple(members))

    def since(self, before: Row) -> Change:
        old = before.members if isinstance(before, GroupRow) else {}
        # a member that moved to another Node is new there and gone here
        added = {m: place for m, place in self.members.items() if old.get(m) != place}
        removed = {m: place for m, place in old.items() if self.members.get(m) != place}
        return MemberChange(self._rule, self._found.metadata, added, removed)

    def changed(
        self, added: Mapping[Any, str], removed: Iterable[Any], span: frozenset[str]
    ) -> tuple[Row, MemberChange]:
        """Apply a change; what was before (its span and identity alone) and the change as it is sent."""
        before = Row(self._resource, self._found, self.span)
        gone = {m: self._leave(m) for m in removed if m in self.members}
        for member, place in added.items():
            if self.members.get(member, place) != place:
                gone[member] = self._leave(member)
        new = {m: place for m, place in added.items() if m not in self.members}
        for member, place in new.items():
            self.members[member] = place
            if self.by_node:
                self._at.setdefault(place, {})[member] = None
        self.span = span
        self._body = None
        return before, MemberChange(self._rule, self._found.metadata, new, gone)

    def _leave(self, member: Any) -> str:
        place = self.members.pop(member)
        if self.by_node:
            here = self._at[place]
            del here[member]
            if not here:
                del self._at[place]
        return place


class MemberChange:
    """Members that came and went, each with its Node."""

    def __init__(self, rule: Members, meta: Any, added: dict[Any, str], removed: dict[Any, str]) -> None:
        self._rule = rule
        self._meta = meta
        self._added = added
        self._removed = removed
        self._at: dict[str, tuple[list[Any], list[Any]]] = {}
        if rule.by_node:
            for number, changed in enumerate((added, removed)):
                for member, place in changed.items():
                    self._at.setdefault(place, ([], []))[number].append(member)

    def seen_by(self, node: str | None) -> Seen | None:
        """The patch, None if no member that `node` sees came or went.

        A watcher of all Nodes is not told of a member that only moved.
        """
        if node is None or not self._rule.by_node:
            added = tuple(m for m in self._added if m not in self._removed)
            removed = tuple(m for m in self._removed if m not in self._added)
        else:
            added, removed = map(tuple, self._at.get(node, ((), ())))
        if not added and not removed:
            return None
        patch = self._rule.patch(self._meta, added, removed)
        return patch, body(patch)
