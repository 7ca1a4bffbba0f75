"""Map of traffic: Namespaces, workloads or Services, and the sums of what is sent between each two."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from antrea.flow_aggregator.query_scope import one_of, scope_of
from antrea.flow_aggregator.query_statement import SCOPED, Query, columns_of, select, sums, unknown_sums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    sql = select(columns, scope, f"GROUP BY {by_ends} ORDER BY octets DESC, {by_ends} LIMIT {MAX_LINKS + 1}")
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
