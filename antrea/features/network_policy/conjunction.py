"""Flows of rules: who takes part in a conjunction, and what becomes of a packet that satisfies all of its clauses.

A flow that several conjunctions want for one match unites them, so that each yields its own part of it.
parity: pkg/agent/openflow/network_policy.go, pipeline.go conjunctionActionFlow, allowRulesMetricFlows, defaultDropFlow
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.features.network_policy.address import address_text, networks, service_matches
from antrea.features.network_policy.rule import Conjunction, Rule, own_conjunctions, resolved, targets
from antrea.openflow import action
from antrea.openflow.action import DROP, goto
from antrea.openflow.cookie import Category
from antrea.openflow.ct import ct
from antrea.openflow.fields import (
    EGRESS_RULE_CT_LABEL,
    INGRESS_RULE_CT_LABEL,
    TARGET_OF_PORT,
    TF_EGRESS_CONJ_ID,
    TF_INGRESS_CONJ_ID,
    Zone,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import conj_id, ct_state, dst, ip, ipv6, src
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT
from antrea.openflow.tables import (
    EGRESS_DEFAULT_RULE,
    EGRESS_METRIC,
    EGRESS_RULE,
    INGRESS_DEFAULT_RULE,
    INGRESS_METRIC,
    INGRESS_RULE,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts
    from antrea.facts.ovs import PodInterface
    from antrea.features.network_policy.sent import SentAddressMember
    from antrea.openflow.field import Action, Field, Match
    from antrea.openflow.table import Table

POOL = "conjunction"
RESERVED = 1
"""Ids that are no rule's: 1 holds back DNS answers."""
ISOLATES = 45
"""Isolation stands before the rules that make exceptions from it, and goes after them."""
FROM, TO, SERVICE = 1, 2, 3
"""Numbers of the clauses, as far as a rule has them."""

flow = flows_of(Category.NETWORK_POLICY)
isolation = flows_of(Category.NETWORK_POLICY, rank=ISOLATES)


class Side(NamedTuple):
    """What differs between rules on what Pods send and on what they receive."""

    rule: Table
    default: Table
    metric: Table
    label: Field
    """Where a connection remembers the rule that let it pass."""
    register: Field
    """Where a packet does, for those who trace it."""
    target: int
    """Number of the clause of the Pods that the rule is for."""
    peer: int


OUT = Side(EGRESS_RULE, EGRESS_DEFAULT_RULE, EGRESS_METRIC, EGRESS_RULE_CT_LABEL, TF_EGRESS_CONJ_ID, FROM, TO)
IN = Side(
    INGRESS_RULE, INGRESS_DEFAULT_RULE, INGRESS_METRIC, INGRESS_RULE_CT_LABEL, TF_INGRESS_CONJ_ID, TO, FROM
)


class Part(NamedTuple):
    """A match that satisfies one clause of one conjunction."""

    table: Table
    priority: int
    match: tuple[Match, ...]
    action: Action


def side(rule: Rule) -> Side:
    return OUT if rule.egress else IN


def number(facts: Facts, found: Conjunction) -> int:
    """The id of a conjunction in flows; it keeps it over restarts."""
    return facts.id(POOL, found.name) + RESERVED


def part(facts: Facts, rule: Rule, found: Conjunction, clause: int, *match: Match) -> Part:
    """`match` satisfies a clause of `rule`; every port is no clause."""
    clauses = SERVICE if found.services else TO
    return Part(
        side(rule).rule,
        Priority.NORMAL,
        match,
        action.conjunction(number(facts, found), clause, clauses),
    )


def united(parts: Iterable[Part]) -> Iterator[Flow]:
    """One flow for all parts of the same match."""
    found: dict[tuple[Table, int, tuple[Match, ...]], list[Action]] = {}
    for one in parts:
        found.setdefault((one.table, one.priority, one.match), []).append(one.action)
    for (table, priority, match), actions in found.items():
        yield flow(table, priority, *match, then=()).with_parts(actions)


def families(facts: Facts) -> list[bool]:
    """Of the Pods of this Node; True is IPv6."""
    node = facts.get(ThisNode)
    return sorted({is_ipv6(cidr) for cidr in node.pod_cidrs}) if node else []


def target_matches(rule: Rule, pod: PodInterface) -> list[tuple[Match, ...]]:
    """Packets of a Pod that a rule is for: by address what it sends, by port what it receives."""
    if rule.egress:
        return [(src(address),) for address in pod.ips]
    return [(TARGET_OF_PORT(pod.ofport).match,)]


# units


def isolation_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """What no rule allows is dropped, in each direction in which a rule is for the Pod.

    A job of its own: it stands also if the rules are too many for one message.
    """
    for rule, _ in targets(facts, pod):
        for match in target_matches(rule, pod):
            yield isolation(side(rule).default, Priority.NORMAL, *match, then=DROP)


def target_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """The Pod in the conjunctions of the rules that are for it."""
    yield from united(
        part(facts, rule, found, side(rule).target, *match)
        for rule, member in targets(facts, pod)
        for found in own_conjunctions(facts, rule, member, target=True)
        for match in target_matches(rule, pod)
    )


def peer_flows(facts: Facts, row: SentAddressMember) -> Iterator[Flow]:
    """A member of a group of peers in the conjunctions of the rules that name the group."""
    addresses = [address_text(packed) for packed in row.member.ips]
    yield from united(
        part(facts, rule, found, side(rule).peer, dst(address) if rule.egress else src(address))
        for rule in facts.by(Rule, "peer", row.group)
        for found in own_conjunctions(facts, rule, row.member, target=False)
        for address in addresses
    )


def conjunction_flows(facts: Facts, found: Conjunction) -> Iterator[Flow]:
    """What a conjunction has beside Pods: its networks and ports, what it does, and its counters."""
    rule = facts.get(Rule, found.rule)
    if rule is None:
        return
    versions = families(facts)
    yield from united(
        (*_network_parts(facts, rule, found, versions), *_port_parts(facts, rule, found, versions))
    )
    for v6 in versions:
        yield from _allowed(rule, number(facts, found), v6=v6)


def _network_parts(facts: Facts, rule: Rule, found: Conjunction, versions: list[bool]) -> Iterator[Part]:
    """Networks have no ports: with named ones they take part where the numbers are the rule's own."""
    if rule.named and rule.egress and found.services != resolved(rule.services, ()):
        return
    for block in rule.peer.ip_blocks:
        for one in networks(block):
            if (one.version == 6) in versions:
                match = dst(str(one)) if rule.egress else src(str(one))
                yield part(facts, rule, found, side(rule).peer, match)


def _port_parts(facts: Facts, rule: Rule, found: Conjunction, versions: list[bool]) -> Iterator[Part]:
    for v6 in versions:
        for service in found.services:
            for match in service_matches(service, v6=v6):
                yield part(facts, rule, found, SERVICE, *match)


def _allowed(rule: Rule, conjunction: int, *, v6: bool) -> Iterator[Flow]:
    """The connection is committed with the rule's number, by which its packets are counted and let pass."""
    here, family = side(rule), ipv6 if v6 else ip
    label = here.label(conjunction)
    zone = Zone.CT_ZONE_V6 if v6 else Zone.CT_ZONE
    remember = ct(zone, commit=True, table=here.metric, then=[label.load])
    yield flow(
        here.rule,
        Priority.LOW,
        family,
        conj_id(conjunction),
        then=[here.register(conjunction).load, remember],
    )
    for state in ("+new", "-new"):
        yield flow(here.metric, Priority.NORMAL, family, ct_state(state), label.match, then=[goto(NEXT)])
