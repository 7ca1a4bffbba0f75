"""Answers from the table of records: each query is bounded in time, rows and work, and reads only.

With a list of Namespaces an answer covers the connections whose ends are both in them, or outside of the cluster. An end
without a Pod in the record, as of a connection that the other end's Node denied, counts as outside, with its address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from antrea.errors import Invalid, Unavailable
from antrea.flow_aggregator.flow_table import COLUMNS
from antrea.flow_aggregator.query_map import flow_map
from antrea.flow_aggregator.query_scope import scope_of, whole
from antrea.flow_aggregator.query_statement import MEMORY, SCOPED, SECONDS, Make, Query, select
from antrea.flow_aggregator.query_totals import policies, top
from antrea.outside.clickhouse.store import rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from antrea.outside.clickhouse.store import Store

MAX_RECORDS: Final = 1000
"""Records of one answer."""
_NO_TABLE: Final = "Code: 60."
"""Beginning of ClickHouse's error before the first record: UNKNOWN_TABLE."""
_LIMITS: Final = {
    "Code: 159.": f"took more than {SECONDS} s",
    "Code: 241.": f"took more than {MEMORY >> 20} MiB of memory",
}
"""Error messages for queries that the engine has ended: TIMEOUT_EXCEEDED, MEMORY_LIMIT_EXCEEDED."""
_RECORD: Final = ("timeInserted", *COLUMNS)


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
    try:
        rows = await store.run(query.sql, parameters=query.values)
    except Unavailable as error:
        if _NO_TABLE in str(error):
            return query.shape([])
        limit = next((text for code, text in _LIMITS.items() if code in str(error)), "")
        if not limit:
            raise
        raise Unavailable(
            f"the query {limit}: ask for less time (since), or for fewer (pod, namespace)"
        ) from error
    return query.shape(rows_of(rows))


def flows(parameters: Mapping[str, str], namespaces: Sequence[str] | None) -> Query:
    """The records with the latest packets, by the names of their elements; times in seconds of Unix. Raises Invalid."""
    scope = scope_of("flows", parameters, namespaces, (*SCOPED, "limit"))
    limit = whole(parameters, "limit", 100, MAX_RECORDS)
    columns = ", ".join(_shown(name) for name in _RECORD)
    sql = select(columns, scope, "ORDER BY flowEndSeconds DESC, timeInserted DESC LIMIT {limit:UInt32}")

    def shape(rows: list[list[Any]]) -> dict[str, Any]:
        records = [dict(zip(_RECORD, row, strict=True)) for row in rows[:limit]]
        return {"rows": records, "truncated": len(rows) > limit}

    return Query(sql, {**scope.values, "limit": limit + 1}, shape)


def _shown(name: str) -> str:
    return f"toUnixTimestamp({name})" if COLUMNS.get(name, "DateTime") == "DateTime" else name


QUERIES: Final[Mapping[str, Make]] = {"flows": flows, "map": flow_map, "top": top, "policies": policies}
