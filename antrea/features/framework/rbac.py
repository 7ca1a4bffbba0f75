"""Declaration of a feature's rights at kube-apiserver, in module `rbac` of its folder: `AGENT_RULES`, `CONTROLLER_RULES`,
and `ANTCTL_RULES` of users of antctl, which hold what no command of the feature reads by itself.

The ClusterRoles of the chart are made of these rows by `make manifests`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CRD: Final = "crd.antrea.io"
FOLLOW: Final = ("list", "watch")
READ: Final = ("get", "list", "watch")


class Rule(NamedTuple):
    """Verbs on resources of one API group, or on paths of the programs' own APIs."""

    purpose: str
    """Comment above the rule; empty for one that belongs to the rule before it."""
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Names of objects that the rule is restricted to; empty for all. An element may be text of a template."""
    gate: str = ""
    """Gate without which the chart leaves out the rule, and those of the same gate that follow; empty: always there."""
    urls: tuple[str, ...] = ()
    """Paths instead of resources, as nonResourceURLs."""


def template_rules(rules: Iterable[Rule]) -> Iterator[str]:
    """Yield the lines of the rules, as a template of a chart."""
    gate = ""
    for rule in rules:
        if rule.gate != gate:
            if gate:
                yield "{{- end }}"
            if gate := rule.gate:
                yield f'{{{{- if dig "{gate}" (dig "AllAlpha" false .Values.featureGates) .Values.featureGates }}}}'
        if rule.purpose:
            yield f"  # {rule.purpose}"
        yield from _lines(rule)
    if gate:
        yield "{{- end }}"


def _lines(rule: Rule) -> Iterator[str]:
    if rule.urls:
        yield "  - nonResourceURLs:"
        yield from (f"      - {url}" for url in rule.urls)
    else:
        yield f"  - apiGroups: [{rule.group or chr(34) * 2}]"
        yield f"    resources: [{', '.join(rule.resources)}]"
    if rule.names:
        yield f"    resourceNames: [{', '.join(rule.names)}]"
    yield f"    verbs: [{', '.join(rule.verbs)}]"
