"""Rows and their indexes; a write says which reads it touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from antrea.facts.fact import Fact

Read = tuple[Any, ...]
"""(kind,) a whole kind, (kind, key) one row, (kind, index, value) the rows under one index value.

And (kind, index, value, ANY): whether there is such a row, which units over values of an index follow.
"""
ANY = True


def places(kind: type[Fact], row: Fact | None) -> dict[Read, None]:
    """The index values under which `row` is found."""
    if row is None or not kind.indexes:
        return {}
    return {(kind, name, value): None for name, index in kind.indexes.items() for value in index(row)}


class Store:
    """Rows by kind and key. Lists come sorted by key, so that a unit cannot depend on the order of events."""

    def __init__(self) -> None:
        self.rows: dict[type[Fact], dict[str, Fact]] = {}
        self.found: dict[Read, Fact | dict[str, Fact]] = {}
        """Most places have one row: it stands for itself."""
        self.followed: Collection[tuple[type, str]] = ()
        """Indexes, by kind and name, over whose values there are units."""

    def get(self, kind: type[Fact], key: str) -> Fact | None:
        rows = self.rows.get(kind)
        return None if rows is None else rows.get(key)

    def by(self, kind: type[Fact], index: str, value: Hashable) -> dict[str, Fact]:
        """Raises LookupError if `kind` has no such index."""
        if index not in kind.indexes:
            raise LookupError(f"{kind.__name__} has no index {index!r}")
        found = self.found.get((kind, index, value))
        if found is None:
            return {}
        return found if isinstance(found, dict) else {found.key: found}

    def all(self, kind: type[Fact]) -> dict[str, Fact]:
        return self.rows.get(kind, {})

    def write(self, kind: type[Fact], key: str, row: Fact | None) -> list[Read]:
        """Put `row` (None drops it); returns the reads whose answer changed. An index that raises leaves all as it was."""
        old = self.get(kind, key)
        if old == row:
            return []
        before, after = places(kind, old), places(kind, row)
        touched: list[Read] = [(kind, key), (kind,), *(before | after)]
        for place in before:
            if place not in after:
                self._leave(place, key)
                if place not in self.found and place[:2] in self.followed:
                    touched.append((*place, ANY))
        if row is None:
            rows = self.rows[kind]
            del rows[key]
            if not rows:
                del self.rows[kind]
        else:
            self.rows.setdefault(kind, {})[key] = row
            new = [place for place in after if self._enter(place, old, row)]
            touched += [(*place, ANY) for place in new if place[:2] in self.followed]
        return touched

    def _enter(self, place: Read, old: Fact | None, row: Fact) -> bool:
        """`row` is found there from now on, instead of `old`; is it the first?"""
        first = self.found.setdefault(place, row)
        if isinstance(first, dict):
            first[row.key] = row
        elif first is old:
            self.found[place] = row
        elif first is row:
            return True
        else:
            self.found[place] = {first.key: first, row.key: row}
        return False

    def _leave(self, place: Read, key: str) -> None:
        rows = self.found[place]
        if isinstance(rows, dict) and len(rows) > 1:
            del rows[key]
        else:
            del self.found[place]
