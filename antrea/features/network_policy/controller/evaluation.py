"""Evaluation of which rule decides between two Pods, for `antctl query networkpolicyevaluation`: a pure function over the rows.

As upstream's, it compares rules by Tier, priority of the policy and number, whatever their direction, and sees peers that are
Pods: not those that are networks, nor rules for everybody, nor ports. Kubernetes NetworkPolicies are between the Tiers
application and baseline, their default isolation after all rules of theirs. Unlike upstream's, a rule that has `appliedTo` of
its own counts only for these Pods, and Groups are found by name.
parity: pkg/controller/networkpolicy/endpoint_querier.go QueryNetworkPolicyEvaluation
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis import controlplane_report as report
from antrea.errors import Invalid, Unavailable
from antrea.facts.cluster import Namespace, Pod
from antrea.facts.group import Matches
from antrea.features.grouping.member import ADDRESS, APPLIED
from antrea.features.network_policy.audit_mode import ENFORCED, AuditMode
from antrea.features.network_policy.controller.antrea_internal_policy import PRIORITIES, InternalPolicy
from antrea.features.network_policy.controller.kube_policy import (
    KubePolicy,
    applied,
    is_audited,
    reference,
    rules,
)
from antrea.features.network_policy.controller.peer import numbers_with
from antrea.features.network_policy.tier import BASELINE, DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts

DEFAULT_NAMESPACE = "default"
ISOLATION = 0x7FFFFFFF
"""Number of a Pod's isolation, which is after all rules."""
KUBE_TIER = PRIORITIES[BASELINE] - 0.5
"""Tier after all but the baseline's."""
PASSES = "Pass"


class _End(msgspec.Struct, frozen=True):
    """Relation of policies to one Pod."""

    pod: Pod
    selectors: frozenset[str]
    """Keys of the selectors that select it; none for a Pod without an address of its own."""
    applied: frozenset[str]
    """Names of its groups as a target."""
    peers: frozenset[str]
    """Names of its groups as a peer."""


class _Policy(msgspec.Struct, frozen=True):
    """Policy for a Pod."""

    source: cp.NetworkPolicyReference
    rules: tuple[cp.NetworkPolicyRule, ...]
    tier: float = KUBE_TIER
    priority: float | None = None
    """Priority; None for Kubernetes policies, which have no order."""
    audit: AuditMode = ENFORCED


class _Rule(msgspec.Struct, frozen=True):
    """Rule by its number among those of its direction."""

    policy: _Policy
    number: int
    direction: str
    name: str = ""
    action: str | None = None
    """Action; None for isolation."""

    @property
    def order(self) -> tuple[float, float, int, str]:
        """Order of evaluation, lowest first. Policies of Kubernetes are compared only by number."""
        return (self.policy.tier, self.policy.priority or 0, self.number, self.policy.source.uid)

    @property
    def ends_pass(self) -> bool:
        """Whether it decides what a rule above has passed."""
        if self.policy.priority is None:
            return True
        return self.policy.tier >= PRIORITIES[BASELINE] and self.action != PASSES


def evaluate(facts: Facts, evaluation: report.NetworkPolicyEvaluation) -> report.NetworkPolicyEvaluation:
    """Return the request with its answer; without a response if no rule decides, or a Pod does not exist.

    Raises Invalid for a request that does not name two Pods, Unavailable until everything has been listed.
    """
    request = evaluation.request
    pods = [] if request is None else [request.source.pod, request.destination.pod]
    named = [(pod.namespace or DEFAULT_NAMESPACE, pod.name) for pod in pods if pod and pod.name]
    if len(named) < 2:
        raise Invalid("request", "invalid NetworkPolicyEvaluation request entities")
    if not {Pod, Namespace, KubePolicy} <= facts.feeds.synced:
        raise Unavailable("the lists of Pods and policies are not complete yet, try again")
    source, destination = (facts.get(Pod, f"{namespace}/{name}") for namespace, name in named)
    rule = None if source is None or destination is None else decisive(facts, source, destination)
    return msgspec.structs.replace(evaluation, response=None if rule is None else _response(rule))


def decisive(facts: Facts, source: Pod, destination: Pod) -> _Rule | None:
    """Return the first of the rules about this connection, else the isolation of one of the Pods."""
    sends, receives = _end(facts, source), _end(facts, destination)
    out = _rules_between("Out", _policies(facts, sends), sends, receives)
    into = _rules_between("In", _policies(facts, receives), receives, sends)
    # what is sent is checked before what is received
    ordered = sorted([*out, *into], key=lambda rule: rule.order)
    first = next(iter(ordered), None)
    if first is not None and first.action == PASSES:
        return next((rule for rule in ordered[1:] if rule.ends_pass), first)
    return first


def _end(facts: Facts, pod: Pod) -> _End:
    has_address = not pod.host_network and pod.ips
    matches = facts.get(Matches, pod.labels) if has_address else None
    selectors = frozenset(matches.selectors if matches else ())
    groups = matches.groups if matches else ()
    by_resource = (
        frozenset(group.name for group in groups if group.resource == plural) for plural in (APPLIED, ADDRESS)
    )
    return _End(pod, selectors, *by_resource)


def _policies(facts: Facts, end: _End) -> Iterator[_Policy]:
    """Yield the policies that are for a Pod, or that have a rule for it."""
    for policy in facts.all(KubePolicy):
        if policy.namespace != end.pod.namespace or is_audited(facts, policy):
            continue
        if applied(policy).key in end.selectors:
            yield _Policy(reference(policy), tuple(rules(policy, logging=False)))
    for internal in facts.all(InternalPolicy):
        if not end.applied.isdisjoint(internal.targets):
            sent = internal.policy
            tier = PRIORITIES[DEFAULT] if sent.tier_priority is None else sent.tier_priority
            yield _Policy(internal.source, sent.rules, tier, sent.priority or 0.0, internal.audit)


def _rules_between(direction: str, policies: Iterable[_Policy], this: _End, other: _End) -> Iterator[_Rule]:
    """Yield rules of this direction for the Pod `own` with `other` as a peer; and isolation."""
    for policy in policies:
        same = [rule for rule in policy.rules if rule.direction == direction]
        for number in numbers_with(same, direction, other.peers):
            rule = same[number]
            if policy.audit.has(rule.name):
                continue
            if rule.applied_to_groups and this.applied.isdisjoint(rule.applied_to_groups):
                continue
            yield _Rule(policy, number, direction, rule.name, rule.action or "Allow")
        if same and policy.priority is None:
            yield _Rule(policy, ISOLATION, direction)


def _response(rule: _Rule) -> report.NetworkPolicyEvaluationResponse:
    return report.NetworkPolicyEvaluationResponse(
        network_policy=rule.policy.source,
        rule_index=rule.number,
        rule=report.RuleRef(direction=rule.direction, name=rule.name, action=rule.action),
    )
