"""Selectors as values: their canonical form, what they match, and the labels by which they are indexed.

Source: k8s.io/apimachinery pkg/labels (String, Matches), pkg/apis/meta/v1 LabelSelectorAsSelector
parity: pkg/controller/types/group.go GenerateNormalizedName
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from antrea.facts.group import ENTITY, NODE, POD, GroupSelector, Place, Requirement
from antrea.features.framework.label import is_object_name, key_faults, value_faults

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antrea.apis.crd.part import LabelSelector
    from antrea.facts.cluster import Namespace
    from antrea.facts.group import LabelSet

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
_WORDS = {ENTITY: "eeSelector", NODE: "nodeSelector", POD: "podSelector"}
SERVICE_ACCOUNT = "internal.antrea.io/service-account"
"""Label of Pods for their ServiceAccount, besides their own."""
NEVER: Requirement = ("", "in", ())
"""Condition that nothing meets. No label has its key, so that no selector of valid labels has the same text."""


def requirements(selector: LabelSelector) -> tuple[Requirement, ...]:
    """Return the conditions of a selector in the order of their keys; without any it selects everything.

    Keys and values that no label can have select nothing. Passed on, they would let the author of one selector write the text
    of another: the key `env=prod`, with Exists, reads as the label `env` with the value `prod`.
    """
    conditions: list[Requirement] = [(key, "=", (value,)) for key, value in selector.match_labels.items()]
    for expression in selector.match_expressions:
        operator = _OPERATORS[expression.operator or "In"]
        if operator != "notin" or expression.values:
            values = () if operator in ("exists", "!") else tuple(sorted(expression.values))
            conditions.append((expression.key, operator, values))
    if not all(_can_be_met(*condition) for condition in conditions):
        return (NEVER,)
    return tuple(sorted(conditions, key=lambda condition: condition[0]))


@lru_cache(maxsize=1024)
def _can_be_met(key: str, operator: str, values: tuple[str, ...]) -> bool:
    """Whether key and values are valid for labels; consecutive policies often have the same."""
    sound = not key_faults(key) and not any(value_faults(value) for value in values)
    return sound and bool(values or operator != "in")


def group_selector(
    namespace: str = "",
    pods: LabelSelector | None = None,
    namespaces: LabelSelector | None = None,
    *,
    entities: LabelSelector | None = None,
    nodes: LabelSelector | None = None,
) -> GroupSelector | None:
    """Make the selector of an object of `namespace` ("" for those of the cluster); None if it selects nothing."""
    kind, labels = POD, pods
    if nodes is not None:
        kind, labels = NODE, nodes
    elif entities is not None:
        kind, labels = ENTITY, entities
    if not namespace and labels is None and namespaces is None:
        return None
    return selector_of(
        namespace if namespaces is None else "",
        None if namespaces is None else requirements(namespaces),
        None if labels is None else requirements(labels),
        kind,
    )


@lru_cache(maxsize=1024)
def selector_of(
    namespace: str,
    namespaces: tuple[Requirement, ...] | None,
    labels: tuple[Requirement, ...] | None,
    kind: str = POD,
) -> GroupSelector:
    """Make a selector of conditions; consecutive policies often have the same. An invalid Namespace has no members."""
    if namespace and not is_object_name(namespace):
        namespace, labels = "", (NEVER,)
    return GroupSelector(
        name=_name(namespace, namespaces, labels, kind),
        places=tuple(_places(kind, namespace, labels or (), namespaces or ())),
        namespace=namespace,
        namespaces=namespaces,
        labels=labels,
        kind=kind,
    )


def account_selector(namespace: str, account: str) -> GroupSelector:
    """Make the selector of Pods that run as this ServiceAccount."""
    named = (SERVICE_ACCOUNT, "=", (account,))
    return selector_of(namespace, None, (named if is_object_name(account) else NEVER,))


def _name(
    namespace: str,
    namespaces: tuple[Requirement, ...] | None,
    labels: tuple[Requirement, ...] | None,
    kind: str,
) -> str:
    if namespaces is None and kind == POD and labels is not None:
        return f"namespace={namespace} And {_pods(labels)}" if namespace else _pods(labels)
    parts = [f"namespace={namespace}"] if namespace else []
    if namespaces is not None:
        parts.append(f"namespaceSelector={text(namespaces)}")
    if labels is not None:
        parts.append(f"{_WORDS[kind]}={text(labels)}")
    return " And ".join(sorted(parts))


@lru_cache(maxsize=1024)
def _pods(labels: tuple[Requirement, ...]) -> str:
    return f"{_WORDS[POD]}={text(labels)}"


def text(conditions: Iterable[Requirement]) -> str:
    """Format a selector as kubectl does: `app=web,tier in (a,b),!canary`."""
    return ",".join(_requirement_text(*condition) for condition in conditions)


def _requirement_text(key: str, operator: str, values: tuple[str, ...]) -> str:
    if operator == "exists":
        return key
    if operator == "!":
        return f"!{key}"
    if operator == "=":
        return f"{key}={values[0]}"
    return f"{key} {operator} ({','.join(values)})"


def meets(labels: Mapping[str, str], conditions: Iterable[Requirement]) -> bool:
    """Whether labels meet all conditions."""
    for key, operator, values in conditions:  # noqa: SIM110 (a generator costs more than the comparison)
        if not _meets(labels, key, operator, values):
            return False
    return True


def _meets(labels: Mapping[str, str], key: str, operator: str, values: tuple[str, ...]) -> bool:
    if operator in ("exists", "!"):
        return (key in labels) == (operator == "exists")
    if operator == "notin":
        return labels.get(key) not in values
    return key in labels and labels[key] in values


def selects(selector: GroupSelector, label_set: LabelSet, home: Namespace | None) -> bool:
    """Whether the selector matches a label set; `home` is its Namespace, None while that is unknown."""
    if selector.kind != label_set.kind or (selector.namespace and selector.namespace != label_set.namespace):
        return False
    if selector.namespaces and (home is None or not meets(dict(home.labels), selector.namespaces)):
        return False
    conditions = selector.labels
    return not conditions or meets(label_set.labels, conditions)


def _places(
    kind: str, namespace: str, labels: tuple[Requirement, ...], namespaces: tuple[Requirement, ...]
) -> Iterator[Place]:
    """Yield index places: for one condition that requires a label, each of its values; a selector is found by all that it may
    match.
    """
    for where, conditions in ((_namespace_of(kind, namespace), labels), (_home(kind), namespaces)):
        for key, operator, values in conditions:
            if operator == "exists":
                yield (where, key)
                return
            if operator == "=":
                yield (where, key, values[0])
                return
            if operator == "in":
                for value in dict.fromkeys(values):
                    yield (where, key, value)
                return
    yield (_every(kind), namespace)


def candidate_places(label_set: LabelSet, home: Namespace | None) -> Iterator[Place]:
    """Yield the places of all selectors that may match these labels."""
    kind, of_namespace = label_set.kind, () if home is None else home.labels
    space = label_set.namespace
    spaces = ("", space) if space else ("",)
    for namespace in spaces:
        where = f"{kind} own {namespace}"
        for key, value in label_set.labels.items():
            yield (where, key)
            yield (where, key, value)
    where = f"{kind} home"
    for key, value in of_namespace:
        yield (where, key)
        yield (where, key, value)
    where = f"{kind} every"
    for namespace in spaces:
        yield (where, namespace)


def _namespace_of(kind: str, namespace: str) -> str:
    return f"{kind} own {namespace}"


def _home(kind: str) -> str:
    return f"{kind} home"


def _every(kind: str) -> str:
    """Return the place of selectors that require no label."""
    return f"{kind} every"
