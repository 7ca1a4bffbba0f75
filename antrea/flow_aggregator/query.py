"""Answers from the table of records: each query is bounded in time, rows and work, and reads only.

With a list of Namespaces an answer covers the connections whose ends are both in them, or outside of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from antrea.errors import Invalid
from antrea.flow_aggregator.flow_table import COLUMNS, TABLE
from antrea.flow_aggregator.query_scope import Scope, scope_of, whole

if TYPE_CHECKING:
    from antrea.outside.clickhouse.store import Store, Value

BOUNDS: Final = (
    "SETTINGS max_execution_time = 5, max_memory_usage = 268435456, max_result_bytes = 8388608, "
    "output_format_json_quote_64bit_integers = 0, output_format_json_validate_utf8 = 1, readonly = 1 "
    "FORMAT JSONCompactEachRow"
)
"""Of every query: seconds, bytes of memory and of the answer; numbers are numbers, and text is UTF-8."""
MOST: Final = 1000
"""Records of one answer."""
SCOPED: Final = (
    "since", "until", "namespace", "pod", "srcip", "dstip", "port", "protocol", "action", "policy", "egress",
)  # fmt: skip
"""Parameters of every query."""
_RECORD: Final = ("timeInserted", *COLUMNS)


class Query(NamedTuple):
    """A statement, the values of its parameters, and what its rows become."""

    sql: str
    values: Mapping[str, Value]
    shape: Callable[[list[list[Any]]], dict[str, Any]]


Make = Callable[[Mapping[str, str], Sequence[str] | None], Query]


async def answer(
    store: Store, name: str, parameters: Mapping[str, str], namespaces: Sequence[str] | None
) -> dict[str, Any]:
    """The answer to the query `name`, as JSON has it; `namespaces` None: of all Namespaces.

    Raises Invalid naming a parameter, Unavailable: the store cannot answer.
    """
    make = QUERIES.get(name)
    if make is None:
        raise Invalid("query", f"{name!r} is not one of {', '.join(QUERIES)}")
    query = make(parameters, namespaces)
    found = await store.run(query.sql, parameters=query.values)
    return query.shape(msgspec.json.decode(b"[%s]" % b",".join(found.splitlines())))


def flows(asked: Mapping[str, str], namespaces: Sequence[str] | None) -> Query:
    """The newest records, by the names of their elements; times in seconds of Unix. Raises Invalid."""
    scope = scope_of("flows", asked, namespaces, (*SCOPED, "limit"))
    limit = whole(asked, "limit", 100, MOST)
    columns = ", ".join(_shown(name) for name in _RECORD)
    sql = select(columns, scope, "ORDER BY timeInserted DESC, flowEndSeconds DESC LIMIT {limit:UInt32}")

    def shape(rows: list[list[Any]]) -> dict[str, Any]:
        found = [dict(zip(_RECORD, row, strict=True)) for row in rows[:limit]]
        return {"rows": found, "truncated": len(rows) > limit}

    return Query(sql, {**scope.values, "limit": limit + 1}, shape)


def select(columns: str, scope: Scope, rest: str) -> str:
    """A bounded statement; `columns` and `rest` are texts of this program."""
    return f"SELECT {columns} FROM {TABLE} WHERE {scope.text} {rest} {BOUNDS}"  # noqa: S608 (values are parameters)


def _shown(name: str) -> str:
    return f"toUnixTimestamp({name})" if COLUMNS.get(name, "DateTime") == "DateTime" else name


QUERIES: Final[Mapping[str, Make]] = {"flows": flows}
