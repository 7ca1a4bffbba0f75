"""One unit over one row: what it read, what it wants, what of that stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Set

    from antrea.engine.entry import Act, Ref
    from antrea.engine.ids import IdRef
    from antrea.engine.store import Read
    from antrea.engine.unit import Unit
    from antrea.errors import Refused

NOTHING: dict[Any, Any] = {}
NO_IDS: frozenset[Any] = frozenset()


class Hold:
    """A job whose entries were refused: until `due` its last whole version stands in for what it wants."""

    __slots__ = ("due", "refused")

    def __init__(self, due: float, refused: Refused) -> None:
        self.due = due
        self.refused = refused


class Job:
    """Identity is the object: hashing and comparing cost nothing."""

    __slots__ = (
        "acts",
        "due",
        "given",
        "gone",
        "good",
        "held",
        "ids",
        "key",
        "leaving",
        "open",
        "reads",
        "tries",
        "unit",
        "waiting",
        "wanted",
    )

    def __init__(self, unit: Unit, key: str) -> None:
        self.unit = unit
        self.key = key
        self.reads: tuple[Read, ...] = ()
        self.ids: Set[IdRef] = NO_IDS
        self.leaving: dict[IdRef, None] = NOTHING
        """Numbers it no longer uses, but entries of it (or of what it derived) may still carry."""
        self.acts: dict[Any, Act] = NOTHING
        """By class, key and cause."""
        self.wanted: dict[Ref, Any] = NOTHING
        """What its last good run yielded."""
        self.given: dict[Ref, Any] = NOTHING
        """What it contributes now: `wanted`, or `good` while it is held back."""
        self.good: dict[Ref, Any] = NOTHING
        """Its last version that stood as a whole."""
        self.waiting: dict[Ref, None] = NOTHING
        """Entries, and derived rows that could not be written, where its contribution changed and does not stand yet."""
        self.due = False
        """It has to run (again)."""
        self.open = False
        """The pass in which it ran or was released is not over: rows that it derives may not be written yet."""
        self.gone = False
        """Its row is not there any more."""
        self.held: Hold | None = None
        self.tries = 0

    @property
    def whole(self) -> bool:
        """Everything it wants stands, and it has nothing left to do."""
        return not (self.due or self.open or self.waiting or self.held)

    @property
    def name(self) -> tuple[str, str]:
        return (self.unit.name, self.key)

    @property
    def held_name(self) -> tuple[str, str, str]:
        """Under which it is listed as held back."""
        return ("held", *self.name)
