"""The value wanted under one key: equal states are shared, values with parts unite, of others the first claim counts.

Two values are the same state if they differ in the engine's bookkeeping alone (`BOOKKEEPING`): entries of two features that
want the same are one entry, which is put as early as any of them and dropped as late.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.engine.core.clash import Clash
from antrea.engine.core.place import ORPHANED

if TYPE_CHECKING:
    from antrea.engine.core.place import Cell

FEW = 8
"""Up to so many distinct parts are sorted anew each time; more are kept sorted."""


BOOKKEEPING = ("category", "rank")
"""Fields of entries by which the engine orders and sweeps them; they are not part of the state outside."""

_bookkeeping: dict[type, tuple[str, ...]] = {}
"""Bookkeeping fields of each class that its values have."""


def bookkeeping_of(kind: type) -> tuple[str, ...]:
    """Return the names of the bookkeeping fields that values of this class have."""
    names = _bookkeeping.get(kind)
    if names is None:
        fields = getattr(kind, "__struct_fields__", ())
        names = _bookkeeping[kind] = tuple([name for name in BOOKKEEPING if name in fields])
    return names


class PartCounts:
    """Values of one state: their parts, if they have any, and their bookkeeping, counted; many parts are also sorted."""

    __slots__ = ("books", "counts", "names", "order", "total", "unites", "value")

    def __init__(self, value: Any) -> None:
        self.value: Any = value
        """Any one of the values: the others differ from it in their parts and bookkeeping alone."""
        self.unites: bool = has_parts(value)
        """Whether values have parts."""
        self.names: tuple[str, ...] = bookkeeping_of(type(value))
        self.total: int = 0
        """Values."""
        self.books: dict[Any, int] = {}
        """Number of values by their bookkeeping."""
        self.counts: dict[Any, int] = {}
        self.order: list[Any] | None = None

    def add(self, value: Any) -> None:
        self.total += 1
        if self.names:
            book = self._book(value)
            self.books[book] = self.books.get(book, 0) + 1
        if not self.unites:
            return
        counts = self.counts
        for part in value.parts:
            count = counts.get(part, 0)
            counts[part] = count + 1
            if not count and self.order is not None:
                self._insert(self.order, part)

    def remove(self, value: Any) -> None:
        self.total -= 1
        if self.names:
            book = self._book(value)
            if self.books[book] == 1:
                del self.books[book]
            else:
                self.books[book] -= 1
        if not self.unites:
            return
        counts = self.counts
        for part in value.parts:
            count = counts[part] - 1
            if count:
                counts[part] = count
                continue
            del counts[part]
            if self.order is not None:
                del self.order[bisect_left(self.order, part)]

    def _book(self, value: Any) -> Any:
        return tuple([getattr(value, name) for name in self.names])

    def _insert(self, order: list[Any], part: Any) -> None:
        try:
            insort(order, part)
        except TypeError:
            self.order = None

    def united(self) -> Any:
        """Return the value with all parts, and the lowest rank and category: the same whatever the order of the values."""
        value = self._with_parts() if self.unites else self.value
        if len(self.books) < 2 and (not self.books or self._book(value) in self.books):
            return value
        least = {name: min([book[at] for book in self.books]) for at, name in enumerate(self.names)}
        return msgspec.structs.replace(value, **least)

    def _with_parts(self) -> Any:
        """Return the value with all parts: sorted, or, if they cannot be compared, by their representation."""
        if self.order is not None:
            return self.value.with_parts(tuple(self.order))
        parts = list(self.counts)
        if len(parts) > 1:
            try:
                parts.sort()
            except TypeError:
                parts.sort(key=repr)
            else:
                if len(parts) > FEW:
                    self.order = parts
        return self.value.with_parts(tuple(parts))


def has_parts(value: Any) -> bool:
    """Return whether `value` unites with others of its key."""
    return bool(getattr(value, "parts", None))


def state_of(value: Any) -> Any:
    """Return `value` without its parts and its bookkeeping: what must be equal for two values to be shared or to unite."""
    unites = has_parts(value)
    state = value.with_parts(()) if unites else value
    names = bookkeeping_of(type(value))
    return unites, msgspec.structs.replace(state, **dict.fromkeys(names, 0)) if names else state


class SharedValue:
    """Values that several owners want under one key.

    Where they clash, one owner holds the key: the one that claimed it first, or, if none has held it yet, the one
    whose value is applied. A later claim, or a change of it, never takes the key from its holder.
    """

    __slots__ = ("agreed", "claims", "groups", "holder", "total", "undecided", "value", "values")

    def __init__(self, value: Any, undecided: bool = False, owner: Any = None) -> None:
        self.total: int = 1
        """Owners."""
        self.value: Any = value
        """The value, if all owners want the same."""
        self.values: dict[Any, int] | None = None
        """Number of owners by value, once there are several values."""
        self.claims: dict[Any, Any] = {owner: value}
        """Value by owner, in the order of their claims; None stands for the owner of a row that was alone before."""
        self.holder: Any = owner
        """The owner whose value counts where they clash."""
        self.undecided: bool = undecided
        """No owner holds the key yet."""
        self.groups: dict[Any, PartCounts] = {}
        """The distinct values by their states."""
        self.agreed: Any = None
        """The value to apply, once worked out."""

    def change(self, owner: Any, old: Any, new: Any) -> None:
        """`owner` wants `new` instead of `old`; None stands for nothing."""
        claims = self.claims
        if old is not None:
            key = owner if owner in claims else None
            if key is self.holder:
                self.agreed = None
            if new is not None:
                claims[key] = new
            else:
                del claims[key]
                if key is self.holder:
                    self.undecided = True
        else:
            claims[owner] = new
        if new is not None:
            self.total += 1
            self._add(new)
        if old is not None:
            self.total -= 1
            self._remove(old)

    def _add(self, value: Any) -> None:
        values = self.values
        if values is None:
            if value is self.value or value == self.value:
                return
            values = self.values = {self.value: self.total - 1}
            self._enter(self.value)
            self.value = None
        count = values.get(value, 0)
        values[value] = count + 1
        if not count:
            self._enter(value)

    def _enter(self, value: Any) -> None:
        self.agreed = None
        state = state_of(value)
        group = self.groups.get(state)
        if group is None:
            group = self.groups[state] = PartCounts(value)
        group.add(value)

    def _remove(self, value: Any) -> None:
        values = self.values
        if values is None:
            return
        count = values[value] - 1
        if count:
            values[value] = count
            return
        del values[value]
        self.agreed = None
        if len(values) == 1:
            self.value = next(iter(values))
            self.values = None
            self.groups = {}
            return
        state = state_of(value)
        group = self.groups[state]
        group.remove(value)
        if not group.total:
            del self.groups[state]

    @property
    def clashes(self) -> bool:
        """Whether owners want different values that cannot unite."""
        return self.values is not None and len(self.groups) != 1

    def clash(self, cell: Cell) -> Clash | None:
        """Return the clash of the owners, if they clash."""
        return Clash(cell.ref, len(self.groups)) if self.clashes else None

    def get(self, cell: Cell) -> Any:
        """Return the one value, the united one, or, where owners clash, that of the holder and those that unite with it."""
        if self.values is None:
            return self.value
        if self.agreed is None:
            if self.clashes:
                self.agreed = self._held(cell)
            else:
                self.agreed = next(iter(self.groups.values())).united()
        return self.agreed

    def _held(self, cell: Cell) -> Any:
        if self.undecided:
            applied = cell.doubt if cell.value is None else cell.value
            self.holder = next(iter(self.claims))
            for owner, value in self.claims.items():
                if value == applied:
                    self.holder = owner
                    break
            self.undecided = False
        return self.groups[state_of(self.claims[self.holder])].united()

    @property
    def held(self) -> Any:
        """The claim that counts where owners clash."""
        return self.claims.get(self.holder)

    def counts(self, value: Any) -> bool:
        """Whether `value`, of one of the owners, is part of what `get` returned."""
        if not self.clashes:
            return True
        held = self.held
        if value is None or value == held:
            return True
        return held is not None and bool(state_of(value) == state_of(held))

    def last(self) -> Any:
        """Return the value of the only owner left."""
        return next(iter(self.claims.values()))


class UnitedParts(SharedValue):
    """Values of one key that differ in their parts alone (`parts_only`): parts are counted, no value is kept.

    A value that differs otherwise is a fault of its unit, and clashes: it does not count while older ones exist.
    """

    __slots__ = ("fields", "odd", "parts")

    def __init__(self, value: Any, fields: tuple[str, ...]) -> None:
        SharedValue.__init__(self, value)
        self.parts = PartCounts(value)
        self.parts.add(value)
        self.claims = {}
        self.fields: tuple[str, ...] = fields
        """All but the parts."""
        self.odd: dict[Any, Any] | None = None
        """Values that differ otherwise, by owner, if there are any."""

    def change(self, owner: Any, old: Any, new: Any) -> None:
        """`owner` wants `new` instead of `old`; None stands for nothing."""
        self.agreed = None
        was_odd = self.odd is not None and old is not None and self.odd.pop(owner, None) is not None
        if new is not None:
            self.total += 1
            self._add(new, owner)
        if old is not None:
            self.total -= 1
            if not was_odd:
                self.parts.remove(old)
        if not self.parts.total and self.odd:
            self._hand_over(self.odd)

    def _hand_over(self, odd: dict[Any, Any]) -> None:
        """Require the others to agree with the oldest of the differing values."""
        self.odd = None
        self.parts = PartCounts(next(iter(odd.values())))
        for owner, value in odd.items():
            self._add(value, owner)

    def _add(self, value: Any, owner: Any = None) -> None:
        if self._fits(value):
            self.parts.add(value)
        elif self.odd is None:
            self.odd = {owner: value}
        else:
            self.odd[owner] = value

    def _fits(self, value: Any) -> bool:
        standing = self.parts.value
        for name in self.fields:
            mine, theirs = getattr(value, name), getattr(standing, name)
            if mine is not theirs and mine != theirs:
                return False
        return True

    @property
    def clashes(self) -> bool:
        """Whether values differ in more than their parts."""
        return bool(self.odd)

    @property
    def held(self) -> Any:
        """The parts that count."""
        return self.parts

    def clash(self, cell: Cell) -> Clash | None:
        """Return the clash of the owners, if they clash."""
        return Clash(cell.ref, 1 + len(self.odd)) if self.odd else None

    def counts(self, value: Any) -> bool:
        """Whether `value`, of one of the owners, is part of what `get` returned."""
        return not self.odd or value is None or self._fits(value)

    def get(self, _cell: Cell) -> Any:
        """Return the united value."""
        if self.agreed is None:
            self.agreed = self.parts.united()
        return self.agreed

    def last(self) -> Any:
        """Return the united value of the owners left."""
        return self.parts.united()


def desired(cell: Cell) -> Any:
    """Return the value wanted there, or None. Raises what `with_parts` raises."""
    shared = cell.shared
    return cell.wanted if shared is None else shared.get(cell)


def change(cell: Cell, owner: Any, old: Any, new: Any) -> None:
    """`owner` wants `new` instead of `old` there; None stands for nothing."""
    shared = cell.shared
    if shared is None:
        if old is not None:
            cell.wanted = new
            if new is None:
                _set_owner(cell, None)
            return
        if cell.wanted is None:
            cell.wanted = new
            _set_owner(cell, owner)
            if cell.value is not None or cell.doubt is not None:
                cell.flags |= ORPHANED
            return
        cell.shared = shared = _shared(cell)
        cell.wanted = None
        _set_owner(cell, None)
    shared.change(owner, old, new)
    if shared.total == 1:
        cell.wanted = shared.last()
        cell.shared = None
        _set_owner(cell, next(iter(shared.claims), None))


def _shared(cell: Cell) -> SharedValue:
    table = cell.table
    if table.parts_only:
        return UnitedParts(cell.wanted, table.same_fields)
    return SharedValue(cell.wanted, bool(cell.flags & ORPHANED), None if table.is_fact else cell.jobs)


def _set_owner(cell: Cell, owner: Any) -> None:
    if not cell.table.is_fact:
        cell.jobs = owner


def owners_of(entry: Cell) -> list[Any]:
    """Return the jobs whose claim to this entry counts."""
    shared = entry.shared
    if shared is None:
        return [] if entry.jobs is None else [entry.jobs]
    return [owner for owner, value in shared.claims.items() if shared.counts(value)]
