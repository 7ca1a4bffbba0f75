"""What all jobs want together, key by key: shared when equal, united when they have parts, else a Clash."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

from antrea.engine.entry import Ref  # noqa: TC001


class Clash(Exception):
    """Several jobs want different things under one key, and they cannot unite."""

    def __init__(self, ref: Ref, values: list[Any]) -> None:
        kind, key = ref
        super().__init__(f"{len(values)} values for {kind.__name__} {key!r}")
        self.ref = ref
        self.values = values


class Cell:
    """The values wanted under one key, counted, and the parts they unite into, kept as a sorted multiset."""

    __slots__ = ("_agreed", "_bare", "_counts", "_parts", "_values", "total")

    def __init__(self) -> None:
        self.total = 0
        self._values: dict[Any, int] = {}
        self._bare: dict[Any, int] = {}
        self._counts: dict[Any, int] = {}
        self._parts: list[Any] = []
        self._agreed: Any = None

    def add(self, value: Any) -> None:
        self.total += 1
        self._values[value] = count = self._values.get(value, 0) + 1
        if count > 1:
            return
        self._agreed, bare = None, _bare(value)
        self._bare[bare] = self._bare.get(bare, 0) + 1
        for part in value.parts if bare is not None else ():
            self._counts[part] = self._counts.get(part, 0) + 1
            if self._counts[part] == 1:
                insort(self._parts, part, key=repr)

    def remove(self, value: Any) -> None:
        self.total -= 1
        self._values[value] -= 1
        if self._values[value]:
            return
        del self._values[value]
        self._agreed = None
        bare = _bare(value)
        self._bare[bare] -= 1
        if not self._bare[bare]:
            del self._bare[bare]
        for part in value.parts if bare is not None else ():
            self._counts[part] -= 1
            if not self._counts[part]:
                del self._counts[part]
                del self._parts[bisect_left(self._parts, repr(part), key=repr)]

    def agreed(self, ref: Ref) -> Any:
        """The one value, or the united one. Raises Clash."""
        if self._agreed is None:
            first = next(iter(self._values))
            if len(self._values) == 1:
                self._agreed = first
            elif len(self._bare) == 1 and None not in self._bare:
                self._agreed = first.with_parts(tuple(self._parts))
            else:
                raise Clash(ref, list(self._values))
        return self._agreed


def _bare(value: Any) -> Any:
    """`value` without its parts, which must be equal for two values to unite; None if it has none."""
    return value.with_parts(()) if getattr(value, "parts", None) else None


class Wanted:
    """Most keys have one owner and cost one row; a Cell is made for the second and dissolved after it."""

    def __init__(self) -> None:
        self._one: dict[Ref, Any] = {}
        self._many: dict[Ref, Cell] = {}

    def change(self, ref: Ref, old: Any, new: Any) -> None:
        """One job wants `new` instead of `old` under `ref` (None: nothing)."""
        if old is not None and new is not None and ref in self._one:
            self._one[ref] = new
            return
        if old is not None:
            self._remove(ref, old)
        if new is not None:
            self._add(ref, new)

    def get(self, ref: Ref) -> Any:
        """What is wanted under `ref`, or None. Raises Clash."""
        cell = self._many.get(ref)
        return self._one.get(ref) if cell is None else cell.agreed(ref)

    def refs(self) -> list[Ref]:
        return [*self._one, *self._many]

    def _add(self, ref: Ref, value: Any) -> None:
        if (cell := self._many.get(ref)) is not None:
            cell.add(value)
        elif ref in self._one:
            cell = Cell()
            cell.add(self._one[ref])
            cell.add(value)
            del self._one[ref]
            self._many[ref] = cell
        else:
            self._one[ref] = value

    def _remove(self, ref: Ref, value: Any) -> None:
        if (cell := self._many.get(ref)) is None:
            del self._one[ref]
            return
        cell.remove(value)
        if cell.total == 1:
            del self._many[ref]
            self._one[ref] = cell.agreed(ref)
