"""Places: rows of facts, rows found by an index, and cells for what units yield; a table holds all of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.engine.entry import Act
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.engine.core.desired import SharedValue
    from antrea.engine.core.job import BoundUnit

TOUCHED, URGENT, APPEARED, IN_FLIGHT, ORPHANED = 1, 2, 4, 8, 16
"""Flags of a place. TOUCHED: its readers have to run, or its cell is to be reviewed; URGENT: in an urgent pass;
APPEARED: it came or went; IN_FLIGHT: a sink works on it; ORPHANED: it was applied for an owner that is gone, and the new ones are not reviewed."""


class Place:
    """Something that jobs read."""

    __slots__ = ("flags", "readers")

    def __init__(self) -> None:
        self.flags: int = 0
        self.readers: Any = None
        """Jobs that read it: None, one job, or a dict of jobs. Of an entry: the jobs that wait for it to be applied."""


class Row(Place):
    """The value under one key: a fact, or the rows that an index finds under one value."""

    __slots__ = ("jobs", "key", "table", "value")

    def __init__(self, table: Table, key: Any) -> None:
        self.flags = 0
        self.readers = None
        self.table: Table = table
        self.key: Any = key
        self.value: Any = None
        """The fact; of an index one Row, or a dict of rows by key; of an entry the value that its sink confirmed."""
        self.jobs: Any = None
        """Jobs of the units over this row: one job, or a list with one position for each unit. Of an entry: its only owner."""


class Cell(Row):
    """Place of what jobs want under one key: an entry, or a derived row."""

    __slots__ = ("doubt", "pending", "shared", "wanted")

    def __init__(self, table: Table, key: Any) -> None:
        self.flags = 0
        self.readers = None
        self.table = table
        self.key = key
        self.value = None
        self.jobs = None
        self.wanted: Any = None
        """The value of its only owner."""
        self.shared: SharedValue | None = None
        """The values of its owners, if there are several."""
        self.doubt: Any = None
        """The value that a sink works on, or whose outcome is unknown."""
        self.pending: Any = None
        """The Slot or Retry that holds its pending change. Of a derived row: the jobs that changed it in this pass."""

    @property
    def ref(self) -> tuple[type, Any]:
        """Class and key, by which errors and callers name it."""
        return (self.table.kind, self.key)


class Table:
    """All rows of one kind of fact or entry, or of one index."""

    __slots__ = (
        "derived", "everyone", "forgets", "index_by_name", "indexes", "is_act", "is_fact", "kind", "name",
        "observers", "parts_only", "queue", "rows", "same_fields", "units", "values",
    )  # fmt: skip

    def __init__(self, kind: type, name: str = "", values: Any = None) -> None:
        self.kind: type = kind
        self.name: str = name
        """Name of the index; empty for the kind itself."""
        self.values: Any = values
        """Function of an index from a row to the values under which it is found."""
        self.rows: dict[Any, Row] = {}
        self.units: list[BoundUnit] = []
        """Units over this table."""
        self.everyone = Place()
        """Stands for the whole kind: read by `Facts.all`."""
        self.is_fact: bool = issubclass(kind, Fact)
        self.is_act: bool = issubclass(kind, Act)
        self.derived: bool = False
        """Only units write this kind."""
        self.forgets: bool = bool(getattr(kind, "forgets", False))
        self.parts_only: bool = bool(getattr(kind, "parts_only", False))
        self.same_fields: tuple[str, ...] = ()
        """Fields other than the parts, for a kind whose values of one key differ in their parts alone."""
        if self.parts_only:
            self.same_fields = tuple([name for name in kind.__struct_fields__ if name != "parts"])  # type: ignore[attr-defined]
        self.observers: list[Callable[[type, Any], None]] = []
        """Called with kind and key after every write of a row by its feed, or by units if they derive it."""
        self.queue: Any = None
        """The SinkQueue of this kind of entry."""
        self.indexes: list[Table] = []
        self.index_by_name: dict[str, Table] = {}
        if self.is_fact and not name:
            for index, of in kind.indexes.items():  # type: ignore[attr-defined]
                self.index_by_name[index] = table = Table(kind, index, of)
                self.indexes.append(table)

    def row(self, key: Any) -> Row:
        """Return the row under `key`, made if need be."""
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Cell(self, key) if self.derived or not self.is_fact else Row(self, key)
        return row

    def cell(self, key: Any) -> Cell:
        """Return the cell under `key`, made if need be: for entries and derived rows."""
        cell = self.rows.get(key)
        if cell is None:
            cell = self.rows[key] = Cell(self, key)
        assert isinstance(cell, Cell)
        return cell


def discard_if_empty(row: Row) -> None:
    """Remove a row from its table if it holds nothing and nothing refers to it."""
    if row.value is not None or row.readers is not None or row.jobs is not None or row.flags:
        return
    if isinstance(row, Cell) and not (
        row.wanted is None and row.shared is None and row.pending is None and row.doubt is None
    ):
        return
    rows = row.table.rows
    if rows.get(row.key) is row:
        del rows[row.key]
