"""Audited rules: they judge a copy of each first packet that the enforced policies let pass, and drop nothing.

Where a packet has passed all rules of a direction, a group forwards it and then sends a copy through the same tables. The copy
has a mark, which flows of audited rules match. So it meets these among the enforced ones, in the order that all of them would
have. It ends in the metric table: what an audited rule denies is counted there, as what the rule will deny once it is enforced.
A switch without audited rules has nothing of this, and only Pods with audited rules send copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.engine import Unit
from antrea.facts.fact import Fact
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.conjunction import (
    RESERVED,
    families,
    number,
    rules_for_pod,
    target_matches,
)
from antrea.features.network_policy.agent.packet_in import GROUPS
from antrea.features.network_policy.agent.priority import (
    IN,
    OUT,
    POOL,
    DirectionTables,
    direction_of,
    has_location,
    is_baseline,
    location_of,
    tier_table,
)
from antrea.features.network_policy.agent.rule import Conjunction, PolicyRule, member_conjunctions
from antrea.features.network_policy.agent.verdict import (
    AUDITED_METRIC,
    DENIES,
    PASS,
    PASSED_METRIC,
    REJECT,
    denies,
    deny_copy,
)
from antrea.openflow.action import DROP, goto, group, resubmit
from antrea.openflow.cookie import Category
from antrea.openflow.fields import AP_CONJ_ID, AP_DENY, AP_DENY_REG_MARK, AUDIT_PASS_REG_MARK
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.group import Bucket, Group, GroupType
from antrea.openflow.match import conj_id, ct_state, ip, ipv6
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis import controlplane as cp
    from antrea.engine import Facts
    from antrea.openflow.field import Action
    from antrea.openflow.table import Table

COPIED, ENDED = PASSED_METRIC - 2, PASSED_METRIC - 1
"""Priorities in a metric table: where copies are made, and where copies end that no audited rule denies."""
BY_SERVICE = AUDITED_METRIC + 1
"""Priority of copies that a rule on Services has allowed, for which no other rule is evaluated."""
NOBODY = 0
"""Number of the denying rule if it is enforced isolation."""
flow = flows_of(Category.NETWORK_POLICY)
Targets = list[tuple[PolicyRule, "cp.GroupMember"]]


class AuditedIsolation(Fact, frozen=True):
    """Number, like that of a rule, of a Pod's isolation by audited policies of Kubernetes; derived."""

    number: int
    pod: str
    """Interface of the Pod."""
    egress: bool

    @property
    def key(self) -> str:
        return str(self.number)


class AuditedIngress(Fact, frozen=True):
    """Existence of audited ingress rules for some Pod of this Node; derived."""


class _Direction(NamedTuple):
    """Rules for one Pod in a direction in which one is audited."""

    here: DirectionTables
    enforced: Targets
    audited: Targets

    @property
    def isolated(self) -> bool:
        return any(rule.isolates for rule, _ in self.enforced)

    @property
    def becomes_isolated(self) -> bool:
        """Whether only the audited rules isolate the Pod."""
        return not self.isolated and any(rule.isolates for rule, _ in self.audited)

    @property
    def passes(self) -> bool:
        return any(rule.action == PASS and not is_baseline(rule) for rule, _ in self.audited)


def audit_flows(
    facts: Facts, pod: PodInterface
) -> Iterator[Flow | Group | AuditedIsolation | AuditedIngress]:
    """Yield copies of what a Pod sends and receives, and their treatment by other than audited rules."""
    candidates = rules_for_pod(facts, pod)
    for here in (OUT, IN):
        directed = [rule for rule in candidates if direction_of(rule[0]) is here]
        audited = [rule for rule in directed if rule[0].audit]
        if audited:
            rules = _Direction(here, [rule for rule in directed if not rule[0].audit], audited)
            yield from _copies(facts, here, pod)
            yield from _enforced(facts, rules)
            yield from _isolation(facts, pod, rules)
            if here is IN:
                yield AuditedIngress()


def node_port_copy_flows(facts: Facts, conjunction: Conjunction) -> Iterator[Flow]:
    """Yield what an enforced rule for NodePorts does with copies of their connections: the Endpoint is a Pod with audited
    rules.
    """
    rule = facts.get(PolicyRule, conjunction.rule)
    if rule is None or not (rule.on_node_ports and has_location(facts, rule) and facts.get(AuditedIngress)):
        return
    yield _of_copies(facts, rule, number(facts, conjunction))


def _copies(facts: Facts, here: DirectionTables, pod: PodInterface) -> Iterator[Flow | Group]:
    """Yield a group whose second bucket restarts with the mark; the first forwards the packet before, so that nothing can drop
    it.
    """
    realized = facts.get(RealizedPipeline)
    first = here.antrea if realized and realized.pipeline.has(here.antrea) else here.rule
    metric, category = here.metric, Category.NETWORK_POLICY
    group_number = facts.id(GROUPS, f"audit {metric.name}")
    buckets = (
        Bucket(0, (here.audited.load, resubmit(metric))),
        Bucket(1, (AUDIT_PASS_REG_MARK.load, resubmit(first))),
    )
    yield Group(group_number, GroupType.ALL, buckets, category)
    for match in target_matches(here, pod):
        fresh = (here.unaudited.match, AP_DENY(0).match, ct_state("+new"))
        yield flow(metric, COPIED, *fresh, *match, then=[group(group_number)])
    yield flow(metric, ENDED, AUDIT_PASS_REG_MARK.match, then=DROP)


def _enforced(facts: Facts, rules: _Direction) -> Iterator[Flow]:
    """Yield flows by which enforced rules only decide on a copy."""
    for rule, member in rules.enforced:
        if not has_location(facts, rule):
            continue
        for conjunction in member_conjunctions(facts, rule, member, target=True):
            rule_number = number(facts, conjunction)
            if rule.pre_dnat:
                yield from _by_service(facts, rule, rule_number)
                continue
            yield _of_copies(facts, rule, rule_number)


def _of_copies(facts: Facts, rule: PolicyRule, rule_number: int) -> Flow:
    """Make the flow for copies, which precedes the flow by which the rule decides on packets."""
    location = location_of(facts, rule)
    match = (conj_id(rule_number), AUDIT_PASS_REG_MARK.match)
    return flow(location.table, location.verdict + 1, *match, then=_verdict(facts, rule, rule_number))


def _verdict(facts: Facts, rule: PolicyRule, rule_number: int) -> list[Action] | tuple[Action, ...]:
    if rule.action == PASS and not is_baseline(rule):
        return [goto(direction_of(rule).rule)]
    if not denies(facts, rule):
        return DROP  # after a rule of the baseline that passes nothing is left
    return deny_copy(facts, direction_of(rule), tier_table(rule), rule_number, rejects=rule.action == REJECT)


def _by_service(facts: Facts, rule: PolicyRule, rule_number: int) -> Iterator[Flow]:
    """Yield flows for copies that a rule on Services allows before kube-proxy translates them: no other rule is evaluated."""
    label = direction_of(rule).label(rule_number)
    for v6 in families(facts) if rule.action not in (PASS, *DENIES) else ():
        match = (ipv6 if v6 else ip, ct_state("+new"), label.match)
        yield flow(direction_of(rule).metric, BY_SERVICE, *match, then=[goto(NEXT)])


def _isolation(facts: Facts, pod: PodInterface, rules: _Direction) -> Iterator[Flow | AuditedIsolation]:
    """Yield the isolation of copies that no rule allows: by audited policies, or by enforced ones after an audited rule passed."""
    here = rules.here
    if rules.becomes_isolated:
        direction = "Out" if here is OUT else "In"
        rule_number = facts.id(POOL, f"audited isolation {direction} {pod.name}") + RESERVED
        yield AuditedIsolation(rule_number, pod.name, here is OUT)
        match = (AP_DENY_REG_MARK.match, AP_CONJ_ID(rule_number).match)
        yield flow(here.metric, AUDITED_METRIC, *match, then=DROP)
        yield from _closed(facts, pod, here, rule_number, Priority.NORMAL)
    elif rules.isolated and rules.passes:
        yield from _closed(facts, pod, here, NOBODY, Priority.NORMAL + 1)


def _closed(
    facts: Facts, pod: PodInterface, here: DirectionTables, rule_number: int, priority: int
) -> Iterator[Flow]:
    table: Table = here.default
    for match in target_matches(here, pod):
        then = deny_copy(facts, here, table, rule_number)
        yield flow(table, priority, *match, AUDIT_PASS_REG_MARK.match, then=then)


AUDITS = Unit(PodInterface, audit_flows, yields=(AuditedIsolation, AuditedIngress))
NODE_PORT_AUDITS = Unit(Conjunction, node_port_copy_flows)
