"""Output of units and input of sinks: entries (states), acts (done once) and the order between them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Final, Protocol, Self, runtime_checkable

import msgspec

from antrea.rank import Rank

REPORT: Final[int] = Rank.REPORT.value
"""Rank from which an entry only informs people (a status): nothing waits for it and it delays nothing."""

Ref = tuple[type, Hashable]
"""Identity of an entry or of a derived row: its class and its key."""


@runtime_checkable
class Entry(Protocol):
    """A state of the outside: frozen, comparable, hashable.

    Two with the same key are the same state if they differ in `rank` and `category` alone.
    Optional, on the class: `forgets = True`, for entries whose withdrawal must not touch the outside.
    """

    @property
    def key(self) -> Hashable:
        """Identity among the entries of the same class."""

    @property
    def rank(self) -> int:
        """Smaller is put earlier and dropped later: what receives a packet exists before what sends it there."""

    @property
    def category(self) -> int:
        """Which sweep removes what the previous round left of it."""


class Mergeable(Protocol):
    """An entry, or a derived row, whose values unite when several jobs want the same key: those that differ in parts alone.

    Optional, on the class: `parts_only = True`, if all values of one key differ in their parts alone: none is kept then.
    """

    @property
    def parts(self) -> tuple[Any, ...]:
        """Sorted, or sortable; empty for a value that does not unite with others."""

    def with_parts(self, parts: tuple[Any, ...], /) -> Self:
        """Return the same with these parts."""


class Act(msgspec.Struct, frozen=True):
    """Something to do once when `cause` appears under `key`; subclasses carry the data."""

    rank: ClassVar[int] = Rank.ACT
    """An act waits for the puts of smaller rank of its pass; 0 waits for nothing."""

    key: Hashable
    cause: Hashable


class Sink(Protocol):
    """The only way out: one per entry class, or one for several.

    Optional, on the class: `whole = True`, for a sink whose outside may not be seen between two states: what passes have
    worked out is applied in one call, urgent or not, and is not cut into batches.
    """

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        """Make `put` exist and `drop` not exist, in that order; idempotent.

        Raises Refused(entries, why) for a known no; after any other exception the outcome counts as unknown.
        """

    async def resync(self, entries: Sequence[Any]) -> None:
        """Adopt what stands and replay all that is wanted; remove nothing of the previous round yet."""

    async def sweep(self, category: int) -> None:
        """Remove what the previous round left of that category."""


class Plan(msgspec.Struct):
    """The outcome of one single step: puts by rank, drops in reverse, acts as they appeared."""

    put: list[Any]
    drop: list[Any]
    acts: list[Act]


def ref_of(entry: Any) -> Ref:
    """The identity under which the engine keeps `entry`."""
    return (type(entry), entry.key)
