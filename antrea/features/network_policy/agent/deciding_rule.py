"""Policies that state the rule whose number a packet carries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.features.network_policy.agent.conjunction import ConjunctionId
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import StatedRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis import controlplane as cp
    from antrea.engine import Facts

CLUSTER = ("AntreaClusterNetworkPolicy", "K8sClusterNetworkPolicy")
"""Types of policies without a Namespace."""


class RuleOfPolicy(NamedTuple):
    """Rule as a policy states it."""

    policy: str
    """AntreaNetworkPolicy:namespace/name; empty if unknown."""
    rule: cp.NetworkPolicyRule
    priority: int
    """Priority of the flow with the rule's action."""


def stated_rules(facts: Facts, number: int) -> Iterator[RuleOfPolicy]:
    """Yield the rule for each policy that states it, by conjunction number; none if it is gone."""
    numbered = facts.get(ConjunctionId, str(number))
    if numbered is None:
        return
    for stated in facts.by(StatedRule, "rule", numbered.rule):
        policy = facts.get(SentPolicy, stated.policy)
        if policy is not None and stated.number < len(policy.policy.rules):
            rule = policy.policy.rules[stated.number]
            yield RuleOfPolicy(reference(policy.policy.source_ref), rule, numbered.priority)


def reference(source: cp.NetworkPolicyReference | None) -> str:
    """Return type and name of a policy, with its Namespace if it has one; empty if unknown."""
    if source is None:
        return ""
    name = source.name if source.type in CLUSTER else f"{source.namespace}/{source.name}"
    return f"{source.type}:{name}"


def deciding_rule(facts: Facts, number: int) -> RuleOfPolicy | None:
    """Return the first of `stated_rules`."""
    return next(stated_rules(facts, number), None)
