"""The row that everything else is made of: frozen, keyed, indexed by what units ask for."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec


class Fact(msgspec.Struct, frozen=True, gc=False):
    """A frozen row of one kind, identified by `key`.

    A kind of which there is only one row (this Node, the configuration) keeps the key "self".
    `indexes` maps a name to a function from the row to the values under which `Facts.by` finds it.
    The garbage collector does not visit rows, which saves 16 bytes in each: a row must not hold what refers to it.
    """

    indexes: ClassVar[Mapping[str, Callable[[Any], Iterable[Hashable]]]] = {}

    @property
    def key(self) -> str:
        return "self"


Rows = Fact | tuple[Fact, ...] | None
"""Result of a feed for one object: one row, several, or none."""


def each(rows: Rows) -> tuple[Fact, ...]:
    """All of them."""
    return () if rows is None else rows if isinstance(rows, tuple) else (rows,)


def slot_key(owner: str, slot: int) -> str:
    """Return the key of one of several addresses: the first, often the only one, has its owner's name; no name has a space."""
    return f"{owner} {slot}" if slot else owner


def precedence(created: str, name: str, slot: int = 0) -> tuple[str, str, int]:
    """Sort key of rows that compete for a Pod or an address, of which the lowest counts: the oldest, then the first by name.

    `created` is as Kubernetes writes it, RFC 3339; `slot` is for those that have several addresses.
    """
    return (created, name, slot)
