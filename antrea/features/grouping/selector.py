"""Selectors as values: their one form, what they match, and under which labels they are found.

Source: k8s.io/apimachinery pkg/labels (String, Matches), pkg/apis/meta/v1 LabelSelectorAsSelector
parity: pkg/controller/types/group.go GenerateNormalizedName
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from antrea.facts.group import ENTITY, NODE, POD, GroupSelector, Place, Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antrea.apis.crd.part import LabelSelector
    from antrea.facts.cluster import Namespace
    from antrea.facts.group import LabelSet

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
_WORDS = {ENTITY: "eeSelector", NODE: "nodeSelector", POD: "podSelector"}
SERVICE_ACCOUNT = "internal.antrea.io/service-account"
"""A label that Pods have for their ServiceAccount, besides their own."""


def requirements(selector: LabelSelector) -> tuple[Requirement, ...]:
    """The conditions of a selector in the order of their keys; none: it selects everything."""
    exact = [(key, "=", (value,)) for key, value in selector.match_labels.items()]
    if len(exact) < 2 and not selector.match_expressions:
        return tuple(exact)
    others = [
        (one.key, _OPERATORS[one.operator or "In"], tuple(sorted(one.values)))
        for one in selector.match_expressions
    ]
    return tuple(sorted((*exact, *others), key=lambda one: one[0]))


def group_selector(
    namespace: str = "",
    pods: LabelSelector | None = None,
    namespaces: LabelSelector | None = None,
    *,
    entities: LabelSelector | None = None,
    nodes: LabelSelector | None = None,
) -> GroupSelector | None:
    """The selector of an object of `namespace` ("" for those of the cluster); None if it selects nothing."""
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
    """From its conditions; policies in a row often have the same."""
    return GroupSelector(
        name=_name(namespace, namespaces, labels, kind),
        places=tuple(_places(kind, namespace, labels or (), namespaces or ())),
        namespace=namespace,
        namespaces=namespaces,
        labels=labels,
        kind=kind,
    )


def account_selector(namespace: str, account: str) -> GroupSelector:
    """Pods that run as this ServiceAccount."""
    return selector_of(namespace, None, ((SERVICE_ACCOUNT, "=", (account,)),))


def _name(
    namespace: str,
    namespaces: tuple[Requirement, ...] | None,
    labels: tuple[Requirement, ...] | None,
    kind: str,
) -> str:
    parts = [f"namespace={namespace}"] if namespace else []
    if namespaces is not None:
        parts.append(f"namespaceSelector={text(namespaces)}")
    if labels is not None:
        parts.append(f"{_WORDS[kind]}={text(labels)}")
    return " And ".join(sorted(parts))


def text(conditions: Iterable[Requirement]) -> str:
    """As kubectl writes a selector: `app=web,tier in (a,b),!canary`."""
    return ",".join(_word(*one) for one in conditions)


def _word(key: str, operator: str, values: tuple[str, ...]) -> str:
    if operator == "exists":
        return key
    if operator == "!":
        return f"!{key}"
    if operator == "=":
        return f"{key}={values[0]}"
    return f"{key} {operator} ({','.join(values)})"


def meets(labels: Mapping[str, str], conditions: Iterable[Requirement]) -> bool:
    """Whether labels meet all conditions."""
    return all(_meets(labels, *one) for one in conditions)


def _meets(labels: Mapping[str, str], key: str, operator: str, values: tuple[str, ...]) -> bool:
    if operator in ("exists", "!"):
        return (key in labels) == (operator == "exists")
    if operator == "notin":
        return labels.get(key) not in values
    return key in labels and labels[key] in values


def selects(selector: GroupSelector, found: LabelSet, home: Namespace | None) -> bool:
    """Whether what has the labels of `found` is meant; `home` is its Namespace, None while it is not known."""
    if selector.kind != found.kind or (selector.namespace and selector.namespace != found.namespace):
        return False
    if selector.namespaces and (home is None or not meets(dict(home.labels), selector.namespaces)):
        return False
    return meets(found.labels, selector.labels or ())


def _places(
    kind: str, namespace: str, labels: tuple[Requirement, ...], namespaces: tuple[Requirement, ...]
) -> Iterator[Place]:
    """Under one condition that asks for a label, each of its values; a selector is found by all that it may match."""
    for where, conditions in ((_own(kind, namespace), labels), (_home(kind), namespaces)):
        for key, operator, values in conditions:
            if operator == "exists":
                yield (where, key)
                return
            if operator in ("=", "in"):
                yield from ((where, key, value) for value in dict.fromkeys(values))
                return
    yield (_every(kind), namespace)


def looks(found: LabelSet, home: Namespace | None) -> Iterator[Place]:
    """The places of all selectors that may match these labels."""
    kind, of_namespace = found.kind, () if home is None else home.labels
    for where, pairs in (
        *((_own(kind, space), found.labels.items()) for space in dict.fromkeys(("", found.namespace))),
        (_home(kind), of_namespace),
    ):
        for key, value in pairs:
            yield (where, key)
            yield (where, key, value)
    for space in dict.fromkeys(("", found.namespace)):
        yield (_every(kind), space)


def _own(kind: str, namespace: str) -> str:
    return f"{kind} own {namespace}"


def _home(kind: str) -> str:
    return f"{kind} home"


def _every(kind: str) -> str:
    """Where a selector is found that asks for no label to be there."""
    return f"{kind} every"
