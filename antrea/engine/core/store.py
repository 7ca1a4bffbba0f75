"""Writes rows and keeps their indexes."""

from __future__ import annotations

from typing import Any

from antrea.engine.core.place import APPEARED, Row, Table, discard_if_empty


def write(row: Row, value: Any, changed: list[Any]) -> bool:
    """Set the value of `row` (None drops it) and return whether it differs.

    Places whose answer changed are appended to `changed`. A function of an index that raises leaves all as it was.
    """
    old = row.value
    if old is value or old == value:
        return False
    table = row.table
    if table.indexes:
        moves: list[Any] = []
        for index in table.indexes:
            before = () if old is None else values_of(index, old)
            after = () if value is None else values_of(index, value)
            if before or after:
                moves.append((index, before, after))
        row.value = value
        for index, before, after in moves:
            for key in before:
                if key not in after:
                    _leave(row, index, key, changed)
            for key in after:
                _enter(row, index, key, key in before, changed)
    else:
        row.value = value
    changed.append(row)
    if table.everyone.readers is not None:
        changed.append(table.everyone)
    return True


def values_of(index: Table, row: Any) -> tuple[Any, ...]:
    """Return the values under which an index finds `row`, each once."""
    values = tuple(index.values(row))
    return values if len(values) < 2 else tuple(dict.fromkeys(values))


def _leave(row: Row, index: Table, value: Any, changed: list[Any]) -> None:
    bucket = index.rows[value]
    rows = bucket.value
    if type(rows) is dict:
        del rows[row.key]
        if not rows:
            bucket.value = None
    else:
        bucket.value = None
    if bucket.value is None and index.units:
        bucket.flags |= APPEARED
        changed.append(bucket)
    elif bucket.readers is not None:
        changed.append(bucket)
    elif bucket.value is None:
        discard_if_empty(bucket)


def _enter(row: Row, index: Table, value: Any, stays: bool, changed: list[Any]) -> None:
    bucket = index.rows.get(value)
    if bucket is None:
        bucket = index.rows[value] = Row(index, value)
    if not stays:
        rows = bucket.value
        if rows is None:
            bucket.value = row
            if index.units:
                bucket.flags |= APPEARED
                changed.append(bucket)
                return
        elif type(rows) is dict:
            rows[row.key] = row
        else:
            bucket.value = {rows.key: rows, row.key: row}
    if bucket.readers is not None:
        changed.append(bucket)


def facts_in(bucket: Row | None) -> dict[Any, Any]:
    """Return the facts that an index finds under one value, by key."""
    rows = None if bucket is None else bucket.value
    if rows is None:
        return {}
    if type(rows) is dict:
        return {key: row.value for key, row in rows.items()}
    return {rows.key: rows.value}


def sorted_facts(rows: Any) -> list[Any]:
    """Return the facts of the value of an index's row, sorted by key."""
    if rows is None:
        return []
    if type(rows) is not dict:
        return [rows.value]
    return [rows[key].value for key in sorted(rows)]
