"""What becomes of a packet that satisfies all clauses of a rule, and where it is counted.

parity: pkg/agent/openflow/pipeline.go conjunctionActionFlow, conjunctionActionDenyFlow, conjunctionActionPassFlow,
allowRulesMetricFlows, denyRuleMetricFlow
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.features.network_policy import packet_in
from antrea.features.network_policy.packet_in import copied, noted, told_allow
from antrea.features.network_policy.place import place, side, tier_table
from antrea.features.proxy.agent import handed_over
from antrea.openflow.action import DROP, goto, resubmit
from antrea.openflow.cookie import Category
from antrea.openflow.ct import ct
from antrea.openflow.fields import (
    AP_CONJ_ID,
    AP_DENY_REG_MARK,
    DISPOSITION_DROP_REG_MARK,
    DISPOSITION_PASS_REG_MARK,
    DISPOSITION_REJ_REG_MARK,
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
    from antrea.features.network_policy.rule import Rule

REJECT, PASS = "Reject", "Pass"
DENIES = ("Drop", REJECT)
flow = flows_of(Category.NETWORK_POLICY)


def verdict_flows(facts: Facts, rule: Rule, number: int, families: Iterable[bool]) -> Iterator[Flow]:
    """Of conjunction `number`; `families` are those of the Node's Pods, True for IPv6."""
    if rule.action in DENIES:
        yield from _denied(facts, rule, number)
    elif rule.action == PASS:
        yield _passed(facts, rule, number)
    else:
        for v6 in families:
            yield from _allowed(facts, rule, number, v6=v6)


def _passed(facts: Facts, rule: Rule, number: int) -> Flow:
    """On to the rules of Kubernetes; of a rule on Services, to the others on these, of which those of the baseline are left."""
    here, found = side(rule), place(facts, rule)
    then, table, onward = [here.register(number).load], here.rule, goto(here.rule)
    if rule.to_services:
        then.append(SERVICE_RULES_PASSED_REG_MARK.load)
        table, onward = found.table, resubmit(found.table)
    if rule.logging:
        then += [DISPOSITION_PASS_REG_MARK.load, *noted(facts, tier_table(rule), packet_in.LOG)]
        onward = copied(facts, table)
    return flow(found.table, found.verdict, conj_id(number), then=[*then, onward])


def _denied(facts: Facts, rule: Rule, number: int) -> Iterator[Flow]:
    """The packet is counted before it is dropped; the agent is sent a copy of one that it answers or logs."""
    here, found, who = side(rule), place(facts, rule), AP_CONJ_ID(number)
    then, onward = [who.load, AP_DENY_REG_MARK.load], goto(here.metric)
    operations = packet_in.REJECT if rule.action == REJECT else 0
    if rule.logging:
        operations |= packet_in.LOG
        then.append((DISPOSITION_REJ_REG_MARK if rule.action == REJECT else DISPOSITION_DROP_REG_MARK).load)
    if operations:
        then += noted(facts, tier_table(rule), operations)
        onward = copied(facts, here.metric)
    yield flow(found.table, found.verdict, conj_id(number), then=[*then, onward])
    yield flow(here.metric, Priority.NORMAL, AP_DENY_REG_MARK.match, who.match, then=DROP)


def _allowed(facts: Facts, rule: Rule, number: int, *, v6: bool) -> Iterator[Flow]:
    """The connection is committed with the rule's number, by which its packets are counted and let pass."""
    here, found, family = side(rule), place(facts, rule), ipv6 if v6 else ip
    label = here.label(number)
    zone = Zone.CT_ZONE_V6 if v6 else Zone.CT_ZONE
    remember = ct(zone, commit=True, table=here.metric, then=[label.load])
    then = [here.register(number).load, remember]
    if rule.logging:
        then += told_allow(facts, tier_table(rule))
    yield flow(found.table, found.verdict, family, conj_id(number), then=then)
    for state in ("+new", "-new"):
        yield flow(here.metric, Priority.NORMAL, family, ct_state(state), label.match, then=[goto(NEXT)])
    node = facts.get(ThisNode) if rule.to_services else None
    for cidr, onward in handed_over(facts, node) if node else ():
        if is_ipv6(cidr) == v6:
            yield flow(here.metric, Priority.HIGH, dst(cidr), ct_state("+new"), label.match, then=onward)
