"""Verdict on packets that satisfy all clauses of a rule, and their counters.

parity: pkg/agent/openflow/pipeline.go conjunctionActionFlow, conjunctionActionDenyFlow, conjunctionActionPassFlow,
allowRulesMetricFlows, denyRuleMetricFlow
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.features.network_policy.agent import packet_in
from antrea.features.network_policy.agent.packet_in import copy_to_agent, load_operations, report_allowed
from antrea.features.network_policy.agent.priority import direction_of, is_baseline, location_of, tier_table
from antrea.features.network_policy.l7.tenant import inspection_marks, why_not_inspected
from antrea.features.proxy.agent import handed_over
from antrea.openflow.action import DROP, goto, move, resubmit
from antrea.openflow.cookie import Category
from antrea.openflow.ct import ct
from antrea.openflow.fields import (
    AP_CONJ_ID,
    AP_DENY_REG_MARK,
    AUDIT_PASS_REG_MARK,
    CLIENT_IP,
    CLIENT_IP6,
    CONN_SNAT_CT_MARK,
    DISPOSITION_DROP_REG_MARK,
    DISPOSITION_PASS_REG_MARK,
    DISPOSITION_REJ_REG_MARK,
    L7_NP_REDIRECT_REG_MARK,
    NOT_CONN_SNAT_CT_MARK,
    SERVICE_RULES_PASSED_REG_MARK,
    Zone,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import conj_id, ct_state, dst, ip, ipv6
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts
    from antrea.features.network_policy.agent.priority import DirectionTables
    from antrea.features.network_policy.agent.rule import PolicyRule
    from antrea.openflow.field import Action, Match
    from antrea.openflow.table import Table

REJECT, PASS = "Reject", "Pass"
DENIES = ("Drop", REJECT)
AUDITED_METRIC, PASSED_METRIC = Priority.HIGH - 2, Priority.HIGH - 3
"""Priorities in a metric table of copies that an audited rule denies, and of those that it passed and another denies."""
flow = flows_of(Category.NETWORK_POLICY)


def denies(facts: Facts, rule: PolicyRule) -> bool:
    """Whether the rule denies what it matches, as does one whose application protocols nothing inspects."""
    return rule.action in DENIES or bool(rule.l7_protocols and why_not_inspected(facts, rule))


def verdict_flows(facts: Facts, rule: PolicyRule, number: int, families: Iterable[bool]) -> Iterator[Flow]:
    """Yield the verdict flows of conjunction `number`; `families` are those of the Node's Pods, True for IPv6."""
    if rule.audit:
        yield from audited_flows(facts, rule, number)
    elif denies(facts, rule):
        yield from _denied(facts, rule, number)
    elif rule.action == PASS:
        yield _passed(facts, rule, number)
    else:
        for v6 in families:
            yield from _allowed(facts, rule, number, v6=v6)


def audited_flows(facts: Facts, rule: PolicyRule, number: int) -> Iterator[Flow]:
    """Yield flows of an audited rule for a copy: it ends there, or continues; what is denied is counted, and logged."""
    here, location = direction_of(rule), location_of(facts, rule)
    then: list[Action] | tuple[Action, ...] = DROP
    if denies(facts, rule):
        then, who = (
            deny_copy(facts, here, tier_table(rule), number, rejects=rule.action == REJECT),
            AP_CONJ_ID(number),
        )
        yield flow(here.metric, AUDITED_METRIC, AP_DENY_REG_MARK.match, who.match, then=DROP)
    elif rule.action == PASS and not is_baseline(rule):
        passed = here.register(number)
        then = [passed.load, goto(here.rule)]
        yield flow(
            here.metric,
            PASSED_METRIC,
            AP_DENY_REG_MARK.match,
            passed.match,
            AUDIT_PASS_REG_MARK.match,
            then=DROP,
        )
    yield flow(location.table, location.verdict, conj_id(number), then=then)


def deny_copy(
    facts: Facts, here: DirectionTables, table: Table, number: int, *, rejects: bool = False
) -> list[Action]:
    """Make the actions that deny a copy: the agent gets it, no answer is sent, and the metric table counts it for the denying
    rule.
    """
    disposition = DISPOSITION_REJ_REG_MARK if rejects else DISPOSITION_DROP_REG_MARK
    marks = (AP_CONJ_ID(number), AP_DENY_REG_MARK, disposition)
    return [
        *(mark.load for mark in marks),
        *load_operations(facts, table, packet_in.LOG),
        copy_to_agent(facts, here.metric),
    ]


def _passed(facts: Facts, rule: PolicyRule, number: int) -> Flow:
    """Make the flow that passes packets to the rules of Kubernetes; for a rule on Services, to the others on these.

    After a rule of the baseline nothing is left.
    """
    here, location = direction_of(rule), location_of(facts, rule)
    after = here.metric if is_baseline(rule) else here.rule
    then, table, onward = [here.register(number).load], after, goto(after)
    if rule.pre_dnat:
        then.append(SERVICE_RULES_PASSED_REG_MARK.load)
        table, onward = location.table, resubmit(location.table)
    if rule.logging:
        then += [DISPOSITION_PASS_REG_MARK.load, *load_operations(facts, tier_table(rule), packet_in.LOG)]
        onward = copy_to_agent(facts, table)
    return flow(location.table, location.verdict, conj_id(number), then=[*then, onward])


def _denied(facts: Facts, rule: PolicyRule, number: int) -> Iterator[Flow]:
    """Yield flows that count the packet before it is dropped; the agent gets a copy of one that it answers or logs."""
    here, location, who = direction_of(rule), location_of(facts, rule), AP_CONJ_ID(number)
    then, onward = [who.load, AP_DENY_REG_MARK.load], goto(here.metric)
    operations = packet_in.export_operation(facts) | (packet_in.LOG if rule.logging else 0)
    if operations:
        then.append((DISPOSITION_REJ_REG_MARK if rule.action == REJECT else DISPOSITION_DROP_REG_MARK).load)
    operations |= packet_in.REJECT if rule.action == REJECT else 0
    if operations:
        then += load_operations(facts, tier_table(rule), operations)
        onward = copy_to_agent(facts, here.metric)
    yield flow(location.table, location.verdict, conj_id(number), then=[*then, onward])
    yield flow(here.metric, Priority.NORMAL, AP_DENY_REG_MARK.match, who.match, then=DROP)


def _zones(rule: PolicyRule, *, v6: bool) -> Iterator[tuple[Zone, tuple[Match, ...]]]:
    """Yield the zones where connections that a rule allows are tracked, and their matches.

    To a NodePort, one whose source is translated is in the zone of sources by now. In the other zone it would be a second
    connection, without the marks by which it leaves the switch (upstream commits it there).
    """
    zone, new = Zone.CT_ZONE_V6 if v6 else Zone.CT_ZONE, ct_state("+new")
    if not rule.on_node_ports:
        yield zone, ()
        return
    yield zone, (new, NOT_CONN_SNAT_CT_MARK.match)
    yield (Zone.SNAT_CT_ZONE_V6 if v6 else Zone.SNAT_CT_ZONE), (new, CONN_SNAT_CT_MARK.match)


def _noted_client(rule: PolicyRule, *, v6: bool) -> tuple[Action, ...]:
    """Load the address by which the rule judged into a register of the agent's copy, which is not tracked."""
    if not (rule.logging and rule.on_node_ports):
        return ()
    return (move("NXM_NX_CT_IPV6_SRC[]", CLIENT_IP6) if v6 else move("NXM_NX_CT_NW_SRC[]", CLIENT_IP),)


def _allowed(facts: Facts, rule: PolicyRule, number: int, *, v6: bool) -> Iterator[Flow]:
    """Yield flows that commit the connection with the rule's number, by which its packets are counted and let pass.

    A rule with application protocols also commits the VLAN of its tenant.
    """
    here, location, family = direction_of(rule), location_of(facts, rule), ipv6 if v6 else ip
    label = here.label(number)
    marks = [label, *inspection_marks(facts, rule)] if rule.l7_protocols else [label]
    for zone, match in _zones(rule, v6=v6):
        remember = ct(zone, commit=True, table=here.metric, then=[mark.load for mark in marks])
        then = [here.register(number).load, *_noted_client(rule, v6=v6), remember]
        if rule.logging and rule.l7_protocols:
            then.append(L7_NP_REDIRECT_REG_MARK.load)
        if rule.logging:
            then += report_allowed(facts, tier_table(rule))
        yield flow(location.table, location.verdict, family, conj_id(number), *match, then=then)
    for state in ("+new", "-new"):
        yield flow(here.metric, Priority.NORMAL, family, ct_state(state), label.match, then=[goto(NEXT)])
    node = facts.get(ThisNode) if rule.pre_dnat else None
    for cidr, onward in handed_over(facts, node) if node else ():
        if is_ipv6(cidr) == v6:
            yield flow(here.metric, Priority.HIGH, dst(cidr), ct_state("+new"), label.match, then=onward)
