"""Flows that close Pods and NodePorts: to what no rule allows, and to what an unenforceable rule forbids.

parity: pkg/agent/openflow/pipeline.go defaultDropFlow
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.engine import Unit
from antrea.facts.ovs import PodInterface
from antrea.facts.service import Service
from antrea.features.network_policy.agent.conjunction import rules_for_pod, target_matches
from antrea.features.network_policy.agent.node_port import node_port_matches, rules_on
from antrea.features.network_policy.agent.packet_in import LOG, drop_and_report, export_operation
from antrea.features.network_policy.agent.priority import CLOSED, DirectionTables, direction_of, rule_table
from antrea.features.network_policy.agent.rule import ALLOW
from antrea.features.network_policy.agent.unrealized import refused_entries, why_not
from antrea.openflow.action import DROP
from antrea.openflow.cookie import Category
from antrea.openflow.flow import flows_of
from antrea.openflow.priority import Priority
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.network_policy.agent.rule import PolicyRule
    from antrea.features.network_policy.agent.unrealized import RefusedEntries
    from antrea.openflow.flow import Flow
    from antrea.openflow.table import Table

isolation = flows_of(Category.NETWORK_POLICY, rank=Rank.ISOLATION)


def closing_table(facts: Facts, lacks: RefusedEntries, rule: PolicyRule, pod: PodInterface) -> Table | None:
    """Return the table where this rule closes the Pod to what nothing before allows; None if it does not."""
    if rule.isolates:
        return direction_of(rule).default
    return rule_table(rule) if rule.action != ALLOW and why_not(facts, lacks, rule, pod.key) else None


def closed_tables(facts: Facts, pod: PodInterface) -> dict[tuple[DirectionTables, Table], bool]:
    """Return in which direction and where the Pod is closed, and whether drops there are logged."""
    lacks = refused_entries(facts)
    closed: dict[tuple[DirectionTables, Table], bool] = {}
    for rule, _ in rules_for_pod(facts, pod):
        if rule.audit:
            continue
        if (table := closing_table(facts, lacks, rule, pod)) is not None:
            closed[direction_of(rule), table] = closed.get((direction_of(rule), table), False) or (
                rule.isolates and rule.logging
            )
    return closed


def closing_priority(here: DirectionTables, table: Table) -> int:
    """Return the priority of the flow that closes a Pod in a table."""
    return Priority.NORMAL if table is here.default else CLOSED


def isolation_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """Yield drops of what no rule allows, in each direction in which a rule is for the Pod.

    A unit of its own: it is applied even if the rules are too many for one message. A rule that cannot be enforced, and
    forbids, closes its Pods: at its table, so that those of the baseline leave open what others allow.
    """
    for (here, table), logging in closed_tables(facts, pod).items():
        priority = closing_priority(here, table)
        operations = (LOG if logging else 0) | (export_operation(facts) if table is here.default else 0)
        then = drop_and_report(facts, table, operations) if operations else DROP
        for match in target_matches(here, pod):
            yield isolation(table, priority, *match, then=then)


def closed_node_port_flows(facts: Facts, service: Service) -> Iterator[Flow]:
    """Yield drops for NodePorts of a Service with a rule that forbids and cannot be enforced."""
    lacks = refused_entries(facts)
    closed: dict[Table, int] = {}
    for rule in rules_on(facts, service):
        if rule.action != ALLOW and why_not(facts, lacks, rule):
            closed[rule_table(rule)] = closing_priority(direction_of(rule), rule_table(rule))
    for table, priority in closed.items():
        for match in node_port_matches(facts, service):
            yield isolation(table, priority, *match, then=DROP)


ISOLATION = Unit(PodInterface, isolation_flows)
CLOSED_NODE_PORTS = Unit(Service, closed_node_port_flows)
