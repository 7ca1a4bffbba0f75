"""Sums of records: who sends and receives the most, and what policies let pass and denied over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from antrea.errors import Invalid
from antrea.flow_aggregator.query_scope import duration, one_of, scope_of, span_of, whole
from antrea.flow_aggregator.query_statement import SCOPED, Query, connections_if, select, sums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST: Final = 1000
"""Rows of one answer of `top`."""
MOST_STEPS: Final = 1000
MOST_POINTS: Final = 20_000
"""Points of one answer of `policies`, of all policies together."""
_WAYS: Final = ("ingress", "egress")
_POLICIES: Final = ", ".join(
    f"('{way}', {way}NetworkPolicyType, {way}NetworkPolicyNamespace, {way}NetworkPolicyName, {way}NetworkPolicyRuleAction)"
    for way in _WAYS
)
_POLICY: Final = f"arrayJoin([{_POLICIES}]) AS policy"
"""The policies of both directions; of what the isolation by a NetworkPolicy drops there is a type and no name."""
_IS_POLICY: Final = "(policy.2 != 0 OR policy.4 != '')"
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
    "policy": (
        ("direction", "type", "namespace", "name"),
        f"({_POLICY}).1, policy.2, policy.3, policy.4",
        _IS_POLICY,
    ),
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
"""By `by`: keys of a row, what they are computed from, and the condition on them."""


def top(asked: Mapping[str, str], namespaces: Sequence[str] | None) -> Query:
    """Sums by what `by` names, those with the most octets first. Raises Invalid."""
    scope = scope_of("top", asked, namespaces, (*SCOPED, "by", "limit"))
    names, keys, condition = _KEYS[one_of(asked, "by", tuple(_KEYS))]
    limit = whole(asked, "limit", 10, MOST)
    places = ", ".join(str(number + 1) for number in range(len(names)))
    if condition != "1":
        scope.add(condition)
    counted = sums("policy.5 IN (2, 3)") if names[0] == "direction" else sums()
    sql = select(
        f"{keys}, {counted}",
        scope,
        f"GROUP BY {places} ORDER BY octets DESC, {places} LIMIT {{limit:UInt32}}",
    )

    def shape(rows: list[list[Any]]) -> dict[str, Any]:
        every = (*names, "octets", "connections", "denied")
        found = [dict(zip(every, row, strict=True)) for row in rows[:limit]]
        return {"rows": found, "truncated": len(rows) > limit}

    return Query(sql, {**scope.values, "limit": limit + 1}, shape)


def policies(asked: Mapping[str, str], namespaces: Sequence[str] | None) -> Query:
    """Connections that each policy let pass and denied, by steps of time. Raises Invalid."""
    scope = scope_of("policies", asked, namespaces, (*SCOPED, "step"))
    span = span_of(asked)
    step = duration(asked, "step", f"{max(span // 60, 1)}s")
    if span // step >= MOST_STEPS:
        raise Invalid("step", f"must be at least {span // MOST_STEPS + 1}s, of which since has {MOST_STEPS}")
    scope.add(_IS_POLICY)
    at = "intDiv(toUnixTimestamp(timeInserted), {step:UInt32}) * {step:UInt32}"
    counts = f"{connections_if('policy.5 IN (0, 1)')}, {connections_if('policy.5 IN (2, 3)')}"
    columns = f"({_POLICY}).1, policy.2, policy.3, policy.4, {at}, {counts}"
    sql = select(columns, scope, f"GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5 LIMIT {MOST_POINTS + 1}")

    def shape(rows: list[list[Any]]) -> dict[str, Any]:
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for direction, kind, namespace, name, at, allowed, denied in rows[:MOST_POINTS]:
            own = {"direction": direction, "type": kind, "namespace": namespace, "name": name, "points": []}
            one = found.setdefault((direction, kind, namespace, name), own)
            one["points"].append({"time": at, "allowed": allowed, "dropped": denied})
        return {"step": step, "policies": list(found.values()), "truncated": len(rows) > MOST_POINTS}

    return Query(sql, {**scope.values, "step": step}, shape)
