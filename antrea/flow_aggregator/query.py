"""Answers from the table of records: each query is bounded in time, rows and work, and reads only.

With a list of Namespaces an answer covers the connections whose ends are both in them, or outside of the cluster. An end
without a Pod in the record, as of a connection that the other end's Node denied, counts as outside, with its address. The map of traffic has Namespaces,
workloads or Services, and the sums that are sent between each two.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from antrea.errors import Invalid, Unavailable
from antrea.flow_aggregator.flow_table import COLUMNS
from antrea.flow_aggregator.query_scope import one_of, scope_of, whole
from antrea.flow_aggregator.query_statement import (
    MEMORY,
    SCOPED,
    SECONDS,
    Make,
    Query,
    columns_of,
    select,
    sums,
    unknown_sums,
)
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
MAX_LINKS: Final = 2000
"""Links of one answer, those with the most bytes."""
_SUFFIX: Final = "-([bcdfghjklmnpqrstvwxz2456789]{6,10}-)?[bcdfghjklmnpqrstvwxz2456789]{5}$|-[0-9]{1,5}$"
"""Suffix that Deployments, DaemonSets, Jobs and StatefulSets add to their names for a Pod.

Source: https://github.com/kubernetes/apimachinery/blob/master/pkg/util/rand/rand.go (the letters)
"""


def flow_map(parameters: Mapping[str, str], namespaces: Sequence[str] | None) -> Query:
    """Nodes and links; `by` is namespace, workload, service or endpoint: workloads, and what is not a Pod by its address.

    Raises Invalid.
    """
    scope = scope_of("map", parameters, namespaces, (*SCOPED, "by"))
    by = one_of(parameters, "by", ("namespace", "workload", "service", "endpoint"))
    names = (*_ENDS, "service", "destinationTransportPort", "protocolIdentifier")
    namespace, name = "destinationPodNamespace", _name("destination", by)
    is_service = "destinationServicePortName != ''" if by == "service" else "0"
    if by == "service":
        namespace = f"if({is_service}, '', {namespace})"
        name = f"if({is_service}, destinationServicePortName, {name})"
    ends = dict(
        zip(
            names,
            ("sourcePodNamespace", _name("source", by), namespace, name, is_service, *names[5:]),
            strict=True,
        )
    )
    columns, by_ends = columns_of({**ends, **sums(), **unknown_sums()}), ", ".join(names)
    sql = select(columns, scope, f"GROUP BY {by_ends} ORDER BY bytes DESC, {by_ends} LIMIT {MAX_LINKS + 1}")
    return Query(sql, scope.values, partial(_graph, by))


_ENDS: Final = ("fromNamespace", "fromName", "toNamespace", "toName")


def _name(end: str, by: str) -> str:
    """Return the SQL of an end's name: the workload's; where each address counts, the address of an end that is not a Pod."""
    if by == "namespace":
        return "''"
    workload = f"replaceRegexpOne({end}PodName, '{_SUFFIX}', '')"
    return f"if({end}PodNamespace = '', {end}IP, {workload})" if by == "endpoint" else workload


def _node(namespace: str, name: str, by: str, *, is_service: bool = False) -> tuple[str, str, str]:
    """Namespace, name and kind."""
    if is_service:
        return name.partition("/")[0], name, "service"
    if namespace:
        return namespace, name, "namespace" if by == "namespace" else "workload"
    return ("", name, "address") if by == "endpoint" else ("", "", "external")


def _graph(by: str, rows: list[list[Any]]) -> dict[str, Any]:
    nodes: dict[str, dict[str, str]] = {}

    def node(namespace: str, name: str, kind: str) -> str:
        identity = "/".join(part for part in (kind, namespace, name) if part)
        shown = name or namespace or "external"
        nodes.setdefault(identity, {"id": identity, "namespace": namespace, "name": shown, "kind": kind})
        return identity

    links = []
    for row in rows[:MAX_LINKS]:
        source, target = _node(row[0], row[1], by), _node(row[2], row[3], by, is_service=bool(row[4]))
        values = dict(zip(("port", "protocol", *sums(), *unknown_sums()), row[5:], strict=True))
        values["unknown"] = _unknown(values, has_known=values.pop("hasKnown") != 0)
        links.append({"source": node(*source), "target": node(*target), **values})
    return {"nodes": list(nodes.values()), "links": links, "truncated": len(rows) > MAX_LINKS}


def _unknown(values: Mapping[str, int], *, has_known: bool) -> int:
    """How many have an unknown direction: all that were not denied, or fewer, although counts of many are estimated."""
    passed = max(values["connections"] - values["denied"], 0)
    return min(values["unknown"], max(passed - 1, 0)) if has_known else max(passed, values["unknown"])


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
