"""Rows of OVSDB as Python values: the notation on the wire, the schema, and a replica that takes update2 diffs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

Where = tuple[str, str]
"""(table, uuid of a row)"""

_NO_ROW = "00000000-0000-0000-0000-000000000000"
_DEFAULTS: dict[str, Any] = {"integer": 0, "real": 0.0, "boolean": False, "string": "", "uuid": _NO_ROW}


class Shape(Enum):
    """How many atoms a column holds, which decides how its diff is applied (ovsdb-server(7), 4.1.14)."""

    ATOM = "exactly one"
    OPTIONAL = "none or one"
    SET = "any number"
    MAP = "pairs"


class Column(msgspec.Struct, frozen=True):
    """A column as the schema declares it; `default` is what a row holds that does not mention it."""

    shape: Shape
    default: Any

    @classmethod
    def of(cls, declared: str | Mapping[str, Any]) -> Column:
        """`declared` is the <type> of RFC 7047, 3.2."""
        if isinstance(declared, str):
            return cls(Shape.ATOM, _DEFAULTS[declared])
        if "value" in declared:
            return cls(Shape.MAP, {})
        if declared.get("max", 1) != 1:
            return cls(Shape.SET, frozenset())
        if declared.get("min", 1) == 0:
            return cls(Shape.OPTIONAL, None)
        key = declared["key"]
        return cls(Shape.ATOM, _DEFAULTS[key if isinstance(key, str) else key["type"]])

    def value(self, wire: Any) -> Any:
        """An atom; an atom or None; a frozenset of atoms; or a dict. A uuid becomes its text."""
        if self.shape is Shape.MAP:
            return {_atom(key): _atom(value) for key, value in wire[1]}
        atoms = wire[1] if isinstance(wire, list) and wire[0] == "set" else [wire]
        if self.shape is Shape.SET:
            return frozenset(map(_atom, atoms))
        return _atom(atoms[0]) if atoms else None

    def changed(self, old: Any, diff: Any) -> Any:
        """The value after the diff of a "modify": sets differ by their odd members, maps pair by pair."""
        new = self.value(diff)
        if self.shape is Shape.SET:
            return old ^ new
        if self.shape is not Shape.MAP:
            return new
        gone = {key for key, value in new.items() if old.get(key) == value}
        return {key: value for key, value in (old | new).items() if key not in gone}


def _atom(wire: Any) -> Any:
    return wire[1] if isinstance(wire, list) else wire


class Row(msgspec.Struct, frozen=True):
    """A row; columns read as described at `Column.value`."""

    uuid: str
    columns: Mapping[str, Any]

    def __getitem__(self, column: str) -> Any:
        return self.columns[column]


Schema = Mapping[str, Mapping[str, Column]]
"""table -> column -> its shape, for the columns that we watch"""


def watched_schema(
    declared: Mapping[str, Any], columns: Mapping[str, Iterable[str]]
) -> dict[str, dict[str, Column]]:
    """The part of the answer to get_schema that `columns` asks for; what an older OVS lacks is left out."""
    tables: dict[str, dict[str, Column]] = {}
    for table, wanted in columns.items():
        there = declared["tables"].get(table, {"columns": {}})["columns"]
        tables[table] = {name: Column.of(there[name]["type"]) for name in wanted if name in there}
    return tables


class Replica:
    """The watched rows as of the last update, by uuid and by name."""

    def __init__(self) -> None:
        self.schema: Schema = {}
        self._rows: dict[str, dict[str, Row]] = {}
        self._named: dict[tuple[str, str], Row] = {}

    def rows(self, table: str) -> Mapping[str, Row]:
        """uuid -> row"""
        return self._rows.get(table, {})

    def row(self, table: str, name: str) -> Row | None:
        """The row with this value in column `name`; Bridge, Port and Interface names are unique in the database."""
        return self._named.get((table, name))

    def apply(self, updates: Mapping[str, Mapping[str, Mapping[str, Any]]], *, whole: bool) -> set[Where]:
        """Apply <table-updates2>; `whole` means that rows it does not mention are gone. Returns what changed."""
        touched: set[Where] = set()
        if whole:
            for table, rows in self._rows.items():
                for uuid in rows.keys() - updates.get(table, {}).keys():
                    touched |= self._put(table, uuid, None)
        for table, changes in updates.items():
            for uuid, change in changes.items():
                touched |= self._put(table, uuid, self._after(table, uuid, change))
        return touched

    def _after(self, table: str, uuid: str, change: Mapping[str, Any]) -> Row | None:
        columns = self.schema[table]
        (verb, cells), *_ = change.items()
        if verb == "delete":
            return None
        if verb == "modify":
            old = self._rows[table][uuid].columns
            return Row(
                uuid,
                {**old, **{name: columns[name].changed(old[name], diff) for name, diff in cells.items()}},
            )
        said = {name: columns[name].value(wire) for name, wire in cells.items()}
        return Row(uuid, {name: said.get(name, column.default) for name, column in columns.items()})

    def _put(self, table: str, uuid: str, row: Row | None) -> set[Where]:
        rows = self._rows.setdefault(table, {})
        old = rows.pop(uuid, None)
        if old is not None and self._named.get((table, old.columns.get("name", ""))) is old:
            del self._named[table, old["name"]]
        if row is not None:
            rows[uuid] = row
            if "name" in row.columns:
                self._named[table, row["name"]] = row
        return set() if old == row else {(table, uuid)}
