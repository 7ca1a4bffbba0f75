"""Location of a rule in the pipeline: its tables by direction and tier, its OpenFlow priority by its order among others.

parity: pkg/agent/controller/networkpolicy/priority.go (bounds), pod_reconciler.go getOFRuleTable; the numbers between the
bounds are chosen here, see antrea/engine/order_numbers.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.errors import Unavailable
from antrea.facts.fact import Fact
from antrea.openflow.fields import (
    EGRESS_AUDITED_REG_MARK,
    EGRESS_RULE_CT_LABEL,
    INGRESS_AUDITED_REG_MARK,
    INGRESS_RULE_CT_LABEL,
    NOT_EGRESS_AUDITED_REG_MARK,
    NOT_INGRESS_AUDITED_REG_MARK,
    TF_EGRESS_CONJ_ID,
    TF_INGRESS_CONJ_ID,
)
from antrea.openflow.priority import Priority
from antrea.openflow.tables import (
    ANTREA_POLICY_EGRESS_RULE,
    ANTREA_POLICY_INGRESS_RULE,
    DNAT,
    EGRESS_DEFAULT_RULE,
    EGRESS_METRIC,
    EGRESS_RULE,
    INGRESS_DEFAULT_RULE,
    INGRESS_METRIC,
    INGRESS_RULE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.network_policy.agent.rule import PolicyRule
    from antrea.openflow.field import Field, Mark
    from antrea.openflow.table import Table

POOL = "conjunction"
FROM, TO, SERVICE = 1, 2, 3
"""Numbers of the clauses, as far as a rule has them."""
BASELINE_TIERS = (253, 254)
"""Tiers whose rules come after those of Kubernetes."""
CLOSED = Priority.TOP_ANTREA_POLICY - 1
"""Priority of flows that close Pods in a table of Antrea's policies: above all rules, below accepted connections."""
RANKS = (
    (ANTREA_POLICY_EGRESS_RULE.name, 100, CLOSED - 1),
    (ANTREA_POLICY_INGRESS_RULE.name, 100, CLOSED - 1),
    (EGRESS_DEFAULT_RULE.name, 10, 180),
    (INGRESS_DEFAULT_RULE.name, 10, 180),
    (DNAT.name, Priority.HIGH + 1, CLOSED - 1),
)
"""Priorities of ordered rules in each table."""


class DirectionTables(NamedTuple):
    """Differences between egress and ingress rules."""

    antrea: Table
    rule: Table
    default: Table
    metric: Table
    label: Field
    """Field where a connection stores the rule that let it pass."""
    register: Field
    """Register where a packet stores it, for traces."""
    audited: Mark
    """Mark of a packet whose copy audited policies judge."""
    unaudited: Mark
    target: int
    """Number of the clause of the Pods that the rule is for."""
    peer: int


OUT = DirectionTables(
    *(ANTREA_POLICY_EGRESS_RULE, EGRESS_RULE, EGRESS_DEFAULT_RULE, EGRESS_METRIC),
    *(EGRESS_RULE_CT_LABEL, TF_EGRESS_CONJ_ID),
    *(EGRESS_AUDITED_REG_MARK, NOT_EGRESS_AUDITED_REG_MARK),
    *(FROM, TO),
)
IN = DirectionTables(
    *(ANTREA_POLICY_INGRESS_RULE, INGRESS_RULE, INGRESS_DEFAULT_RULE, INGRESS_METRIC),
    *(INGRESS_RULE_CT_LABEL, TF_INGRESS_CONJ_ID),
    *(INGRESS_AUDITED_REG_MARK, NOT_INGRESS_AUDITED_REG_MARK),
    *(TO, FROM),
)


class RulePriority(Fact, frozen=True):
    """Priority and journal number of an ordered rule; derived. A rule without it has no flows."""

    rule: str
    priority: int

    @property
    def key(self) -> str:
        return self.rule


class FlowLocation(NamedTuple):
    """Location of the flows of one rule."""

    table: Table
    match: int
    """Priority of the flows that satisfy its clauses."""
    verdict: int
    """Priority of the flow for packets that satisfy all clauses."""


def direction_of(rule: PolicyRule) -> DirectionTables:
    """Return the tables of the rule's direction."""
    return OUT if rule.egress else IN


def placed_rules(facts: Facts, rule: PolicyRule) -> Iterator[RulePriority]:
    """Yield the priority of a rule. Raises Unavailable while its table is full, or the journal accepts no number."""
    if rule.order is None or rule.exceeds:
        return
    if not rule.named:
        facts.id(POOL, rule.name)
    yield RulePriority(rule.name, facts.rank(rule_table(rule).name, rule.order.rank))


def rule_table(rule: PolicyRule) -> Table:
    """Return the table of a rule's flows.

    While kube-proxy serves Services, a packet to one leaves the switch before any other rule is evaluated, and returns with an
    Endpoint as its destination.
    """
    return DNAT if rule.pre_dnat else tier_table(rule)


def tier_table(rule: PolicyRule) -> Table:
    """Return the table for rules of this tier and direction, by which the agent's log names it."""
    here = direction_of(rule)
    if rule.order is None:
        return here.rule
    return here.default if is_baseline(rule) else here.antrea


def is_baseline(rule: PolicyRule) -> bool:
    """Whether the rule applies only to Pods that no policy of Kubernetes isolates."""
    return rule.order is not None and rule.order.tier in BASELINE_TIERS


def has_location(facts: Facts, rule: PolicyRule) -> bool:
    """Whether the rule can have flows."""
    return not rule.exceeds and (rule.order is None or facts.get(RulePriority, rule.name) is not None)


def location_of(facts: Facts, rule: PolicyRule) -> FlowLocation:
    """Return the location of a rule's flows. Raises Unavailable if it has none."""
    if rule.order is None:
        return FlowLocation(rule_table(rule), Priority.NORMAL, Priority.LOW)
    priority = facts.get(RulePriority, rule.name)
    if priority is None:
        raise Unavailable(f"rule {rule.name} has no priority")
    return FlowLocation(rule_table(rule), priority.priority, priority.priority)
