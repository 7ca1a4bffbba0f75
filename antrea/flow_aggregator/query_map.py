"""Who talks to whom: Namespaces, workloads or Services, and the sums of what goes between each two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from antrea.flow_aggregator.query_scope import one_of, scope_of
from antrea.flow_aggregator.query_statement import SCOPED, Query, select, sums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST: Final = 2000
"""Links of one answer, those with the most octets."""
_SUFFIX: Final = "-([bcdfghjklmnpqrstvwxz2456789]{6,10}-)?[bcdfghjklmnpqrstvwxz2456789]{5}$|-[0-9]{1,5}$"
"""What Deployments, DaemonSets, Jobs and StatefulSets add to their names for a Pod.

Source: https://github.com/kubernetes/apimachinery/blob/master/pkg/util/rand/rand.go (the letters)
"""


def flow_map(asked: Mapping[str, str], namespaces: Sequence[str] | None) -> Query:
    """Nodes and links; `by` is namespace, workload, service or endpoint: workloads, and what is no Pod by its address.

    Raises Invalid.
    """
    scope = scope_of("map", asked, namespaces, (*SCOPED, "by"))
    by = one_of(asked, "by", ("namespace", "workload", "service", "endpoint"))
    from_workload, to = (_pod(end, by) for end in ("source", "destination"))
    if by == "service":
        to = f"if(destinationServicePortName != '', {_SERVICE}, {to})"
    columns = f"{from_workload} AS one, {to} AS other, destinationTransportPort, protocolIdentifier, {sums()}"
    ends = "one, other, destinationTransportPort, protocolIdentifier"
    sql = select(columns, scope, f"GROUP BY {ends} ORDER BY octets DESC, {ends} LIMIT {MOST + 1}")
    return Query(sql, scope.values, _graph)


_SERVICE: Final = "(splitByChar('/', destinationServicePortName)[1], destinationServicePortName, 'service')"


def _pod(end: str, by: str) -> str:
    """A tuple of Namespace, name and kind."""
    name = "''" if by == "namespace" else f"replaceRegexpOne({end}PodName, '{_SUFFIX}', '')"
    kind = "namespace" if by == "namespace" else "workload"
    other = f"('', {end}IP, 'address')" if by == "endpoint" else "('', '', 'external')"
    return f"if({end}PodNamespace = '', {other}, ({end}PodNamespace, {name}, '{kind}'))"


def _graph(rows: list[list[Any]]) -> dict[str, Any]:
    nodes: dict[str, dict[str, str]] = {}

    def node(namespace: str, name: str, kind: str) -> str:
        identity = "/".join(one for one in (kind, namespace, name) if one)
        shown = name or namespace or "external"
        nodes.setdefault(identity, {"id": identity, "namespace": namespace, "name": shown, "kind": kind})
        return identity

    links = [
        {"source": node(*source), "target": node(*target), "port": port, "protocol": protocol}
        | {"octets": octets, "connections": connections, "denied": denied}
        for source, target, port, protocol, octets, connections, denied in rows[:MOST]
    ]
    return {"nodes": list(nodes.values()), "links": links, "truncated": len(rows) > MOST}
