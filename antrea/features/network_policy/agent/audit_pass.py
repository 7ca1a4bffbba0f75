"""Audited rules: they judge a copy of each first packet that the enforced policies let pass, and drop nothing.

Where a packet has passed all rules of a direction, a group sends it on and then a copy once more through the same tables.
The copy has a mark, which flows of audited rules match beside; so it meets these among those that are enforced, in the
order that all of them would have. It ends in the metric table: what an audited rule denies is counted there, as what
the rule will deny once it is enforced. Nothing of this is in a switch without audited rules, and only Pods that some are
for send copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.engine import Unit
from antrea.facts.fact import Fact
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.conjunction import RESERVED, asked, families, number, target_matches
from antrea.features.network_policy.agent.packet_in import GROUPS
from antrea.features.network_policy.agent.priority import (
    IN,
    OUT,
    POOL,
    DirectionTables,
    has_place,
    is_baseline,
    place,
    side,
    tier_table,
)
from antrea.features.network_policy.agent.rule import Conjunction, PolicyRule, own_conjunctions
from antrea.features.network_policy.agent.verdict import (
    AUDITED_METRIC,
    DENIES,
    PASS,
    PASSED_METRIC,
    REJECT,
    denies,
    told_denial,
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
"""Priorities in a metric table: where copies are made, and where they end that no audited rule denies."""
BY_SERVICE = AUDITED_METRIC + 1
"""Of packets that a rule on Services has allowed, of which no other rule is asked."""
NOBODY = 0
"""Number of the rule that denies, where the isolation does that is enforced."""
flow = flows_of(Category.NETWORK_POLICY)
Targets = list[tuple[PolicyRule, "cp.GroupMember"]]


class AuditedIsolation(Fact, frozen=True):
    """Whose copies audited policies of Kubernetes deny by isolation, by a number like that of a rule; derived."""

    number: int
    pod: str
    """Its interface."""
    egress: bool

    @property
    def key(self) -> str:
        return str(self.number)


class AuditedIngress(Fact, frozen=True):
    """That some Pod of this Node has audited rules for what it receives; derived."""


class _Direction(NamedTuple):
    """The rules that are for one Pod in a direction in which one is audited."""

    here: DirectionTables
    enforced: Targets
    audited: Targets

    @property
    def isolated(self) -> bool:
        return any(rule.isolates for rule, _ in self.enforced)

    @property
    def becomes_isolated(self) -> bool:
        """Whether the audited rules alone isolate it."""
        return not self.isolated and any(rule.isolates for rule, _ in self.audited)

    @property
    def passes(self) -> bool:
        return any(rule.action == PASS and not is_baseline(rule) for rule, _ in self.audited)


def audit_flows(
    facts: Facts, pod: PodInterface
) -> Iterator[Flow | Group | AuditedIsolation | AuditedIngress]:
    """Copies of what a Pod sends and receives, and what others than audited rules do with them."""
    found = list(asked(facts, pod))
    for here in (OUT, IN):
        own = [one for one in found if side(one[0]) is here]
        audited = [one for one in own if one[0].audit]
        if audited:
            rules = _Direction(here, [one for one in own if not one[0].audit], audited)
            yield from _copies(facts, here, pod)
            yield from _enforced(facts, rules)
            yield from _isolation(facts, pod, rules)
            if here is IN:
                yield AuditedIngress()


def node_port_copy_flows(facts: Facts, found: Conjunction) -> Iterator[Flow]:
    """What an enforced rule for NodePorts does with copies of connections to these: their Endpoint is a Pod that has them."""
    rule = facts.get(PolicyRule, found.rule)
    if rule is None or not (rule.on_node_ports and has_place(facts, rule) and facts.get(AuditedIngress)):
        return
    yield _of_copies(facts, rule, number(facts, found))


def _copies(facts: Facts, here: DirectionTables, pod: PodInterface) -> Iterator[Flow | Group]:
    """A group, whose second bucket begins anew with the mark; the first comes before it, which nothing may drop."""
    realized = facts.get(RealizedPipeline)
    first = here.antrea if realized and realized.pipeline.has(here.antrea) else here.rule
    metric, category = here.metric, Category.NETWORK_POLICY
    own = facts.id(GROUPS, f"audit {metric.name}")
    buckets = (
        Bucket(0, (here.audited.load, resubmit(metric))),
        Bucket(1, (AUDIT_PASS_REG_MARK.load, resubmit(first))),
    )
    yield Group(own, GroupType.ALL, buckets, category)
    for match in target_matches(here, pod):
        fresh = (here.unaudited.match, AP_DENY(0).match, ct_state("+new"))
        yield flow(metric, COPIED, *fresh, *match, then=[group(own)])
    yield flow(metric, ENDED, AUDIT_PASS_REG_MARK.match, then=DROP)


def _enforced(facts: Facts, rules: _Direction) -> Iterator[Flow]:
    """Enforced rules do nothing to a copy but decide on it."""
    for rule, member in rules.enforced:
        if not has_place(facts, rule):
            continue
        for one in own_conjunctions(facts, rule, member, target=True):
            own = number(facts, one)
            if rule.pre_dnat:
                yield from _by_service(facts, rule, own)
                continue
            yield _of_copies(facts, rule, own)


def _of_copies(facts: Facts, rule: PolicyRule, own: int) -> Flow:
    """It comes before the flow by which the rule decides on packets."""
    found = place(facts, rule)
    match = (conj_id(own), AUDIT_PASS_REG_MARK.match)
    return flow(found.table, found.verdict + 1, *match, then=_verdict(facts, rule, own))


def _verdict(facts: Facts, rule: PolicyRule, own: int) -> list[Action] | tuple[Action, ...]:
    if rule.action == PASS and not is_baseline(rule):
        return [goto(side(rule).rule)]
    if not denies(facts, rule):
        return DROP  # after a rule of the baseline that passes nothing is left
    return told_denial(facts, side(rule), tier_table(rule), own, rejects=rule.action == REJECT)


def _by_service(facts: Facts, rule: PolicyRule, own: int) -> Iterator[Flow]:
    """What a rule on Services allows before kube-proxy translates it is allowed: no other is asked."""
    label = side(rule).label(own)
    for v6 in families(facts) if rule.action not in (PASS, *DENIES) else ():
        match = (ipv6 if v6 else ip, ct_state("+new"), label.match)
        yield flow(side(rule).metric, BY_SERVICE, *match, then=[goto(NEXT)])


def _isolation(facts: Facts, pod: PodInterface, rules: _Direction) -> Iterator[Flow | AuditedIsolation]:
    """Of copies that no rule allows: by audited policies, or by enforced ones after an audited rule has passed it on."""
    here = rules.here
    if rules.becomes_isolated:
        direction = "Out" if here is OUT else "In"
        own = facts.id(POOL, f"audited isolation {direction} {pod.name}") + RESERVED
        yield AuditedIsolation(own, pod.name, here is OUT)
        match = (AP_DENY_REG_MARK.match, AP_CONJ_ID(own).match)
        yield flow(here.metric, AUDITED_METRIC, *match, then=DROP)
        yield from _closed(facts, pod, here, own, Priority.NORMAL)
    elif rules.isolated and rules.passes:
        yield from _closed(facts, pod, here, NOBODY, Priority.NORMAL + 1)


def _closed(
    facts: Facts, pod: PodInterface, here: DirectionTables, own: int, priority: int
) -> Iterator[Flow]:
    table: Table = here.default
    for match in target_matches(here, pod):
        then = told_denial(facts, here, table, own)
        yield flow(table, priority, *match, AUDIT_PASS_REG_MARK.match, then=then)


AUDITS = Unit(PodInterface, audit_flows, yields=(AuditedIsolation, AuditedIngress))
NODE_PORT_AUDITS = Unit(Conjunction, node_port_copy_flows)
