"""Selectors as values: their one form, what they match, and under which labels they are found.

Source: k8s.io/apimachinery pkg/labels (String, Matches), pkg/apis/meta/v1 LabelSelectorAsSelector
parity: pkg/controller/types/group.go GenerateNormalizedName
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.group import GroupSelector, Place, Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antrea.apis.crd.part import LabelSelector
    from antrea.facts.cluster import Namespace
    from antrea.facts.group import LabelSet

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
EVERY: Place = ("every",)
"""Where a selector is found that asks for no label to be there."""


def requirements(selector: LabelSelector) -> tuple[Requirement, ...]:
    """The conditions of a selector in the order of their keys; none: it selects everything."""
    exact = [(key, "=", (value,)) for key, value in selector.match_labels.items()]
    others = [
        (one.key, _OPERATORS[one.operator or "In"], tuple(sorted(one.values)))
        for one in selector.match_expressions
    ]
    return tuple(sorted((*exact, *others), key=lambda one: one[0]))


def group_selector(
    namespace: str = "", pods: LabelSelector | None = None, namespaces: LabelSelector | None = None
) -> GroupSelector | None:
    """The selector of an object of `namespace` ("" for those of the cluster); None if it selects nothing."""
    if not namespace and pods is None and namespaces is None:
        return None
    of_pods = None if pods is None else requirements(pods)
    of_namespaces = None if namespaces is None else requirements(namespaces)
    own = namespace if namespaces is None else ""
    return GroupSelector(
        name=_name(own, of_pods, of_namespaces),
        places=tuple(_places(own, of_pods or (), of_namespaces or ())),
        namespace=own,
        namespaces=of_namespaces,
        pods=of_pods,
    )


def _name(
    namespace: str, pods: tuple[Requirement, ...] | None, namespaces: tuple[Requirement, ...] | None
) -> str:
    parts = [f"namespace={namespace}"] if namespace else []
    if namespaces is not None:
        parts.append(f"namespaceSelector={text(namespaces)}")
    if pods is not None:
        parts.append(f"podSelector={text(pods)}")
    return " And ".join(parts)


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


def selects(
    selector: GroupSelector, found: LabelSet, labels: Mapping[str, str], home: Namespace | None
) -> bool:
    """Whether Pods with the labels of `found` are meant; `home` is their Namespace, None while it is not known."""
    if selector.namespace and selector.namespace != found.namespace:
        return False
    if selector.namespaces and (home is None or not meets(dict(home.labels), selector.namespaces)):
        return False
    return meets(labels, selector.pods or ())


def _places(
    namespace: str, pods: tuple[Requirement, ...], namespaces: tuple[Requirement, ...]
) -> Iterator[Place]:
    """Under one condition that asks for a label, each of its values; a selector is found by all that it may match."""
    for kind, conditions in ((f"pod {namespace}", pods), ("namespace", namespaces)):
        for key, operator, values in conditions:
            if operator == "exists":
                yield (kind, key)
                return
            if operator in ("=", "in"):
                yield from ((kind, key, value) for value in dict.fromkeys(values))
                return
    yield (*EVERY, namespace)


def looks(found: LabelSet, labels: Mapping[str, str], home: Namespace | None) -> Iterator[Place]:
    """The places of all selectors that may match these labels."""
    of_namespace = () if home is None else home.labels
    for kind, pairs in (
        ("pod ", labels.items()),
        (f"pod {found.namespace}", labels.items()),
        ("namespace", of_namespace),
    ):
        for key, value in pairs:
            yield (kind, key)
            yield (kind, key, value)
    yield (*EVERY, "")
    yield (*EVERY, found.namespace)
