"""Which rule decides between two Pods, for `antctl query networkpolicyevaluation`: a pure function over the rows.

As upstream's, it compares rules by their numbers whatever their direction, before default isolation, and sees peers that
are Pods: not those that are networks, nor rules for everybody.
parity: pkg/controller/networkpolicy/endpoint_querier.go QueryNetworkPolicyEvaluation
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis import controlplane_report as report
from antrea.errors import Invalid, Unavailable
from antrea.facts.cluster import Namespace, Pod
from antrea.facts.group import Group, Match
from antrea.features.network_policy.controller import ADDRESS, KubePolicy, applied, reference, rules
from antrea.features.network_policy.peer import numbers_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts

DEFAULT_NAMESPACE = "default"
ISOLATION = 0x7FFFFFFF
"""The number of a Pod's isolation, which is after all rules."""


class _End(msgspec.Struct, frozen=True):
    """What policies have to do with one Pod."""

    own: frozenset[str]
    """Keys of the policies that are for it."""
    groups: frozenset[str]
    """Names of the groups of peers that it is in."""


class _Rule(msgspec.Struct, frozen=True):
    """A rule by its number among those of its direction."""

    policy: KubePolicy
    number: int
    direction: str

    @property
    def isolates(self) -> bool:
        return self.number == ISOLATION


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
    """The first of the rules that let one talk to the other, else what isolates one of them."""
    policies = facts.all(KubePolicy)
    sends, receives = _end(facts, policies, source), _end(facts, policies, destination)
    out = _found("Out", policies, sends.own, receives.groups)
    into = _found("In", policies, receives.own, sends.groups)
    # what is sent is checked before what is received
    found = sorted([*out, *into], key=lambda rule: (rule.number, rule.policy.uid))
    return next(iter(found), None)


def _end(facts: Facts, policies: Iterable[KubePolicy], pod: Pod) -> _End:
    """Nothing for Pods without an address of their own."""
    if pod.host_network or not pod.ips:
        return _End(frozenset(), frozenset())
    selectors = {match.selector for match in facts.by(Match, "labels", pod.labels)}
    near = (policy for policy in policies if policy.namespace == pod.namespace)
    own = (policy.key for policy in near if applied(policy).key in selectors)
    groups = (group for selector in selectors for group in facts.by(Group, "selector", selector))
    return _End(frozenset(own), frozenset(group.name for group in groups if group.resource == ADDRESS))


def _found(
    direction: str, policies: Iterable[KubePolicy], own: frozenset[str], peers: frozenset[str]
) -> Iterator[_Rule]:
    """Rules of this direction, of a Pod's own policies, for a Pod that is in the groups `peers`; and its isolation."""
    for policy in policies:
        if policy.key not in own:
            continue
        same = [rule for rule in rules(policy, logging=False) if rule.direction == direction]
        for number in numbers_with(same, direction, peers):
            yield _Rule(policy, number, direction)
        if same:
            yield _Rule(policy, ISOLATION, direction)


def _response(found: _Rule) -> report.NetworkPolicyEvaluationResponse:
    action = None if found.isolates else "Allow"
    return report.NetworkPolicyEvaluationResponse(
        network_policy=reference(found.policy),
        rule_index=found.number,
        rule=report.RuleRef(direction=found.direction, action=action),
    )
