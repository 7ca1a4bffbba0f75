"""Flows of rules: which Pods, peers and ports take part in a conjunction.

If several conjunctions need a flow with one match it is united, so each yields its own part of it.
parity: pkg/agent/openflow/network_policy.go, pipeline.go conjunctiveMatchFlow, defaultDropFlow
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from antrea.engine import Unit
from antrea.facts.fact import Fact
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.network_policy.agent.match import address_text, networks, service_matches
from antrea.features.network_policy.agent.peer_class import SharedAddress, SharedGroup, class_matches
from antrea.features.network_policy.agent.priority import (
    IN,
    OUT,
    POOL,
    SERVICE,
    TO,
    DirectionTables,
    direction_of,
    has_location,
    is_baseline,
    location_of,
)
from antrea.features.network_policy.agent.received import SentAddressMember
from antrea.features.network_policy.agent.rule import (
    SIDES,
    Conjunction,
    PolicyRule,
    member_conjunctions,
    resolved,
    rules_with_member,
)
from antrea.features.network_policy.agent.verdict import verdict_flows
from antrea.openflow import action
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    AUDIT_PASS_REG_MARK,
    CONJUNCTION_SHARE,
    NOT_SERVICE_RULES_PASSED_REG_MARK,
    TARGET_OF_PORT,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import ct_src, ct_state, dst, in_port, src

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis import controlplane as cp
    from antrea.engine import Facts
    from antrea.openflow.field import Action, Match
    from antrea.openflow.table import Table

RESERVED = 1
"""Number of ids that are not rules': 1 holds back DNS answers."""
flow = flows_of(Category.NETWORK_POLICY)


class ConjunctionId(Fact, frozen=True):
    """Rule of a conjunction's number."""

    number: int
    rule: str
    priority: int
    """Priority of the flow with the rule's action."""

    @property
    def key(self) -> str:
        return str(self.number)


class ClauseMatch(NamedTuple):
    """Match that satisfies one clause of one conjunction."""

    table: Table
    priority: int
    match: tuple[Match, ...]
    action: Action


def number(facts: Facts, conjunction: Conjunction) -> int:
    """Return the id of a conjunction in flows, which survives restarts."""
    return facts.id(POOL, conjunction.name) + RESERVED


def clause_match(
    facts: Facts, rule: PolicyRule, conjunction: Conjunction, clause: int, *match: Match
) -> ClauseMatch:
    """Make the part of a clause of `rule` that `match` satisfies; every port needs no clause."""
    here, clauses = location_of(facts, rule), SERVICE if conjunction.services else TO
    rule_number = number(facts, conjunction)
    return ClauseMatch(
        here.table,
        here.match,
        (*match, *share_match(rule_number)),
        action.conjunction(rule_number, clause, clauses),
    )


def share_match(conj_number: int) -> tuple[Match, ...]:
    """Match that all flows with conjunctions of this number share, so that no flow has more of them than a message holds.

    They differ only in the mask, under which every packet has 0: it meets one flow of each, and gets the conjunctions of all.
    """
    mask = conj_number // action.CONJUNCTIONS
    return (CONJUNCTION_SHARE.within(0, mask),) if mask else ()


def merge(parts: Iterable[ClauseMatch]) -> Iterator[Flow]:
    """Merge parts with the same match into one flow."""
    merged: dict[tuple[Table, int, tuple[Match, ...]], list[Action]] = {}
    for clause in parts:
        merged.setdefault((clause.table, clause.priority, clause.match), []).append(clause.action)
    for (table, priority, match), actions in merged.items():
        yield flow(table, priority, *match, then=()).with_parts(actions)


def _one_per_match(parts: Iterable[ClauseMatch]) -> Iterator[Flow]:
    """Yield one flow for each match: parts of one conjunction with the same match are equal."""
    seen: set[tuple[Match, ...]] = set()
    for clause in parts:
        if clause.match not in seen:
            seen.add(clause.match)
            yield flow(clause.table, clause.priority, *clause.match, then=()).with_parts([clause.action])


def families(facts: Facts) -> list[bool]:
    """Return the families of the Pods of this Node; True is IPv6."""
    node = facts.get(ThisNode)
    return sorted(node.families) if node else []


def target_matches(here: DirectionTables, pod: PodInterface) -> list[tuple[Match, ...]]:
    """Return matches of a Pod that rules are for: by address for what it sends, by port for what it receives.

    A machine outside the cluster is matched by its port, too: it may have more addresses than its ExternalNode lists.
    """
    if here is OUT and pod.uplink:
        return [(in_port(pod.ofport),)]
    if here is OUT:
        return [(src(address),) for address in pod.ips]
    return [(TARGET_OF_PORT(pod.ofport).match,)]


def rules_for_pod(facts: Facts, pod: PodInterface) -> list[tuple[PolicyRule, cp.GroupMember]]:
    """List the rules for a Pod; if policies of Kubernetes isolate it, without later rules on Services."""
    rules = list(rules_with_member(facts, pod))
    isolated = any(rule.isolates and rule.egress and not rule.audit for rule, _ in rules)
    return [target for target in rules if not (isolated and target[0].pre_dnat and is_baseline(target[0]))]


def not_passed_match(rule: PolicyRule) -> tuple[Match, ...]:
    """Match packets that rules like this one are still to be evaluated for."""
    return (NOT_SERVICE_RULES_PASSED_REG_MARK.match,) if rule.pre_dnat and not is_baseline(rule) else ()


def audit_pass_match(rule: PolicyRule) -> tuple[Match, ...]:
    """Match copies, if the rule is audited."""
    return (AUDIT_PASS_REG_MARK.match,) if rule.audit else ()


# units


def target_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """Yield the Pod in the conjunctions of the rules that are for it."""
    matches = {here: target_matches(here, pod) for here in (OUT, IN)}
    yield from merge(
        clause_match(
            facts,
            rule,
            conjunction,
            direction_of(rule).target,
            *match,
            *not_passed_match(rule),
            *audit_pass_match(rule),
        )
        for rule, member in rules_for_pod(facts, pod)
        if has_location(facts, rule)
        for conjunction in member_conjunctions(facts, rule, member, target=True)
        for match in matches[direction_of(rule)]
    )


def peer_clause_flows(facts: Facts, row: SentAddressMember) -> Iterator[Flow | SharedAddress]:
    """Yield a member of a peer group in the conjunctions of the rules that name the group, except rules that share it."""
    addresses = [address_text(packed) for packed in row.member.ips]
    rules: list[PolicyRule] = []
    for direction in SIDES:
        named = f"{row.group} {direction}"
        if facts.get(SharedGroup, named) is None:
            rules += facts.by(PolicyRule, "peer", named)
            continue
        for address in addresses:
            yield SharedAddress(named, direction, address)
    yield from merge(
        clause_match(
            facts, rule, conjunction, direction_of(rule).peer, dst(address) if rule.egress else src(address)
        )
        for rule in rules
        if has_location(facts, rule)
        for conjunction in member_conjunctions(facts, rule, row.member, target=False)
        for address in addresses
    )


def conjunction_flows(facts: Facts, conjunction: Conjunction) -> Iterator[Flow | ConjunctionId]:
    """Yield the parts of a conjunction other than Pods: its networks, ports, shared peers, action and counters."""
    rule = facts.get(PolicyRule, conjunction.rule)
    if rule is None or not has_location(facts, rule):
        return
    versions = families(facts)
    shared = (
        clause_match(facts, rule, conjunction, direction_of(rule).peer, match)
        for match in class_matches(facts, rule)
    )
    networks, ports = (
        _network_parts(facts, rule, conjunction, versions),
        _port_parts(facts, rule, conjunction, versions),
    )
    yield from _one_per_match(chain(shared, networks, ports))
    yield from verdict_flows(facts, rule, number(facts, conjunction), versions)
    yield ConjunctionId(number(facts, conjunction), rule.name, location_of(facts, rule).verdict)


def _network_parts(
    facts: Facts, rule: PolicyRule, conjunction: Conjunction, versions: list[bool]
) -> Iterator[ClauseMatch]:
    """Yield network parts; networks have no ports, so with named ones they take part where the numbers are the rule's own."""
    if rule.named and rule.egress and conjunction.services != resolved(rule.services, ()):
        return
    for block in rule.peer.ip_blocks:
        for network in networks(block):
            if (network.version == 6) in versions:
                yield clause_match(
                    facts, rule, conjunction, direction_of(rule).peer, *_network_match(rule, str(network))
                )


def _network_match(rule: PolicyRule, cidr: str) -> tuple[Match, ...]:
    """Match a network; for connections to NodePorts by connection tracking, since the source may be translated."""
    if rule.on_node_ports:
        return (ct_state("+new"), ct_src(cidr))
    return (dst(cidr) if rule.egress else src(cidr),)


def _port_parts(
    facts: Facts, rule: PolicyRule, conjunction: Conjunction, versions: list[bool]
) -> Iterator[ClauseMatch]:
    for v6 in versions:
        for service in conjunction.services:
            for match in service_matches(service, v6=v6):
                yield clause_match(facts, rule, conjunction, SERVICE, *match)


TARGETS = Unit(PodInterface, target_flows)
PEERS = Unit(SentAddressMember, peer_clause_flows, yields=(SharedAddress,))
CONJUNCTIONS = Unit(Conjunction, conjunction_flows, yields=(ConjunctionId,))
