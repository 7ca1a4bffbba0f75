"""Sums of records: who sends and receives the most, and what policies let pass and denied over time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from antrea.errors import Invalid
from antrea.flow_aggregator.query_scope import duration, one_of, scope_of, span_of, whole
from antrea.flow_aggregator.query_statement import (
    SCOPED,
    Query,
    columns_of,
    connections_if,
    select,
    select_union,
    sums,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from antrea.flow_aggregator.query_scope import Scope

MAX_ROWS: Final = 1000
"""Rows of one answer of `top`."""
MAX_STEPS: Final = 1000
MAX_POINTS: Final = 20_000
"""Points of one answer of `policies`, of all policies together."""
_WAYS: Final = ("ingress", "egress")
_POLICY: Final = ("direction", "type", "namespace", "name")
_KEYS: Final[Mapping[str, tuple[tuple[str, ...], str, str]]] = {
    "source": (
        ("namespace", "name", "ip"),
        "sourcePodNamespace, sourcePodName, if(sourcePodName = '', sourceIP, '')",
        "1",
    ),
    "destination": (
        ("namespace", "name", "ip", "service"),
        "destinationPodNamespace, destinationPodName, if(destinationPodName = '', destinationIP, ''), destinationServicePortName",
        "1",
    ),
    "policy": (_POLICY, "", "1"),
    "egress": (("name", "ip", "node"), "egressName, egressIP, egressNodeName", "egressName != ''"),
    "egress-source": (
        ("name", "ip", "node", "namespace", "pod", "source"),
        "egressName, egressIP, egressNodeName, sourcePodNamespace, sourcePodName, if(sourcePodName = '', sourceIP, '')",
        "egressName != ''",
    ),
    "namespace": (
        ("namespace",),
        "arrayJoin(arrayDistinct([sourcePodNamespace, destinationPodNamespace])) AS namespace",
        "namespace != ''",
    ),
}
"""Columns by `by`: keys of a row, the expression of each, and the condition on them."""


def _of_policies(
    scope: Scope, more: Mapping[str, str], counts: Callable[[str], Mapping[str, str]], rest: str
) -> str:
    """Rows by policy and by `more`, names of columns with what they are computed from; `counts` are those of a direction.

    Of what the isolation by a NetworkPolicy drops there is a type and no name.
    """
    parts, names = [], (*_POLICY, *more, *counts(_WAYS[0]))
    for way in _WAYS:
        kind, namespace, name = (f"{way}NetworkPolicy{field}" for field in ("Type", "Namespace", "Name"))
        keys = dict(zip(_POLICY, (f"'{way}'", kind, namespace, name), strict=True))
        columns = columns_of({**keys, **more, **counts(way)})
        parts.append((columns, f"{kind} != 0 OR {name} != ''", f"GROUP BY {', '.join((*keys, *more))}"))
    return select_union(names, parts, scope, rest)


def _verdicts(way: str) -> dict[str, str]:
    allowed = connections_if(f"{way}NetworkPolicyRuleAction IN (0, 1)")
    return {"allowed": allowed, "dropped": connections_if(_denied(way))}


def _denied(way: str) -> str:
    return f"{way}NetworkPolicyRuleAction IN (2, 3)"


def top(parameters: Mapping[str, str], namespaces: Sequence[str] | None) -> Query:
    """Sums by what `by` names, those with the most bytes first. Raises Invalid."""
    scope = scope_of("top", parameters, namespaces, (*SCOPED, "by", "limit"))
    names, keys, condition = _KEYS[one_of(parameters, "by", tuple(_KEYS))]
    limit = whole(parameters, "limit", 10, MAX_ROWS)
    places = ", ".join(str(number + 1) for number in range(len(names)))
    if condition != "1":
        scope.add(condition)
    order = f"ORDER BY bytes DESC, {places} LIMIT {{limit:UInt32}}"
    if names == _POLICY:
        sql = _of_policies(scope, {}, lambda way: sums(_denied(way)), order)
    else:
        sql = select(f"{keys}, {columns_of(sums())}", scope, f"GROUP BY {places} {order}")

    def shape(rows: list[list[Any]]) -> dict[str, Any]:
        every = (*names, "bytes", "connections", "denied")
        totals = [dict(zip(every, row, strict=True)) for row in rows[:limit]]
        return {"rows": totals, "truncated": len(rows) > limit}

    return Query(sql, {**scope.values, "limit": limit + 1}, shape)


def policies(parameters: Mapping[str, str], namespaces: Sequence[str] | None) -> Query:
    """Connections that each policy let pass and denied, each once, by the step of time in which it began. Raises Invalid.

    Those that began before the time that is asked for are in its first step.
    """
    scope = scope_of("policies", parameters, namespaces, (*SCOPED, "step"))
    span = span_of(parameters)
    step = duration(parameters, "step", f"{max(span // 60, 1)}s")
    if span // step >= MAX_STEPS:
        raise Invalid("step", f"must be at least {span // MAX_STEPS + 1}s, of which since has {MAX_STEPS}")
    begun = "least(greatest(toUnixTimestamp(flowStartSeconds), {first:UInt32}), {last:UInt32})"
    steps = {"time": f"intDiv({begun}, {{step:UInt32}}) * {{step:UInt32}}"}
    last = int(time.time())
    names = ", ".join((*_POLICY, *steps))
    sql = _of_policies(scope, steps, _verdicts, f"ORDER BY {names} LIMIT {MAX_POINTS + 1}")

    def shape(rows: list[list[Any]]) -> dict[str, Any]:
        policies_by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
        for direction, kind, namespace, name, at, allowed, denied in rows[:MAX_POINTS]:
            new_policy = {
                "direction": direction,
                "type": kind,
                "namespace": namespace,
                "name": name,
                "points": [],
            }
            policy = policies_by_key.setdefault((direction, kind, namespace, name), new_policy)
            policy["points"].append({"time": at, "allowed": allowed, "dropped": denied})
        return {"step": step, "policies": list(policies_by_key.values()), "truncated": len(rows) > MAX_POINTS}

    return Query(sql, {**scope.values, "step": step, "first": last - span, "last": last}, shape)
