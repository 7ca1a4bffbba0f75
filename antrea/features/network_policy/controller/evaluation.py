"""Which rule decides between two Pods, for `antctl query networkpolicyevaluation`: a pure function over the rows.

As upstream's, it compares rules by Tier, priority of the policy and number, whatever their direction, and sees peers that
are Pods: not those that are networks, nor rules for everybody, nor ports. Kubernetes NetworkPolicies stand between the
Tiers application and baseline, their default isolation after all rules of theirs.
Unlike upstream's, a rule that has `appliedTo` of its own counts for these Pods alone, and Groups are found by name.
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
"""The number of a Pod's isolation, which is after all rules."""
KUBE_TIER = PRIORITIES[BASELINE] - 0.5
"""After all tiers but the baseline's."""
PASSES = "Pass"


class _End(msgspec.Struct, frozen=True):
    """What policies have to do with one Pod."""

    pod: Pod
    selectors: frozenset[str]
    """Keys of those that select it; none of a Pod without an address of its own."""
    applied: frozenset[str]
    """Names of the groups that it is in, by what policies are for."""
    peers: frozenset[str]
    """The same by peers."""


class _Policy(msgspec.Struct, frozen=True):
    """One of those that are for a Pod."""

    source: cp.NetworkPolicyReference
    rules: tuple[cp.NetworkPolicyRule, ...]
    tier: float = KUBE_TIER
    priority: float | None = None
    """None: of Kubernetes, whose policies have no order."""
    audit: AuditMode = ENFORCED


class _Rule(msgspec.Struct, frozen=True):
    """A rule by its number among those of its direction."""

    policy: _Policy
    number: int
    direction: str
    name: str = ""
    action: str | None = None
    """None: isolation."""

    @property
    def order(self) -> tuple[float, float, int, str]:
        """The least goes first. Policies of Kubernetes are compared by number alone."""
        return (self.policy.tier, self.policy.priority or 0, self.number, self.policy.source.uid)

    @property
    def ends_pass(self) -> bool:
        """Whether it decides what a rule above has passed on."""
        if self.policy.priority is None:
            return True
        return self.policy.tier >= PRIORITIES[BASELINE] and self.action != PASSES


def evaluated(facts: Facts, asked: report.NetworkPolicyEvaluation) -> report.NetworkPolicyEvaluation:
    """The question with its answer; no response: no rule decides, or there is no such Pod.

    Raises Invalid for a question that does not name two Pods, Unavailable until everything has been listed.
    """
    request = asked.request
    pods = [] if request is None else [request.source.pod, request.destination.pod]
    named = [(pod.namespace or DEFAULT_NAMESPACE, pod.name) for pod in pods if pod and pod.name]
    if len(named) < 2:
        raise Invalid("request", "invalid NetworkPolicyEvaluation request entities")
    if not {Pod, Namespace, KubePolicy} <= facts.feeds.synced:
        raise Unavailable("Pods and policies are not known for certain now, try again")
    source, destination = (facts.get(Pod, f"{namespace}/{name}") for namespace, name in named)
    found = None if source is None or destination is None else decisive(facts, source, destination)
    return msgspec.structs.replace(asked, response=None if found is None else _response(found))


def decisive(facts: Facts, source: Pod, destination: Pod) -> _Rule | None:
    """The first of the rules about one talking to the other, else what isolates one of them."""
    sends, receives = _end(facts, source), _end(facts, destination)
    out = _found("Out", _policies(facts, sends), sends, receives)
    into = _found("In", _policies(facts, receives), receives, sends)
    # what is sent is checked before what is received
    found = sorted([*out, *into], key=lambda rule: rule.order)
    first = next(iter(found), None)
    if first is not None and first.action == PASSES:
        return next((rule for rule in found[1:] if rule.ends_pass), first)
    return first


def _end(facts: Facts, pod: Pod) -> _End:
    own = not pod.host_network and pod.ips
    found = facts.get(Matches, pod.labels) if own else None
    selectors = frozenset(found.selectors if found else ())
    groups = found.groups if found else ()
    by_resource = (
        frozenset(group.name for group in groups if group.resource == plural) for plural in (APPLIED, ADDRESS)
    )
    return _End(pod, selectors, *by_resource)


def _policies(facts: Facts, end: _End) -> Iterator[_Policy]:
    """Those that are for it, or that have a rule for it."""
    for policy in facts.all(KubePolicy):
        if policy.namespace != end.pod.namespace or is_audited(facts, policy):
            continue
        if applied(policy).key in end.selectors:
            yield _Policy(reference(policy), tuple(rules(policy, logging=False)))
    for one in facts.all(InternalPolicy):
        if not end.applied.isdisjoint(one.targets):
            found = one.found
            tier = PRIORITIES[DEFAULT] if found.tier_priority is None else found.tier_priority
            yield _Policy(one.source, found.rules, tier, found.priority or 0.0, one.audit)


def _found(direction: str, policies: Iterable[_Policy], own: _End, other: _End) -> Iterator[_Rule]:
    """Rules of this direction for the Pod `own` with `other` as a peer; and isolation."""
    for policy in policies:
        same = [rule for rule in policy.rules if rule.direction == direction]
        for number in numbers_with(same, direction, other.peers):
            rule = same[number]
            if policy.audit.has(rule.name):
                continue
            if rule.applied_to_groups and own.applied.isdisjoint(rule.applied_to_groups):
                continue
            yield _Rule(policy, number, direction, rule.name, rule.action or "Allow")
        if same and policy.priority is None:
            yield _Rule(policy, ISOLATION, direction)


def _response(found: _Rule) -> report.NetworkPolicyEvaluationResponse:
    return report.NetworkPolicyEvaluationResponse(
        network_policy=found.policy.source,
        rule_index=found.number,
        rule=report.RuleRef(direction=found.direction, name=found.name, action=found.action),
    )
