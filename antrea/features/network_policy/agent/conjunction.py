"""Flows of rules: which Pods, peers and ports take part in a conjunction.

A flow that several conjunctions want for one match unites them, so that each yields its own part of it.
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
    has_place,
    is_baseline,
    place,
    side,
)
from antrea.features.network_policy.agent.received import SentAddressMember
from antrea.features.network_policy.agent.rule import (
    SIDES,
    Conjunction,
    PolicyRule,
    own_conjunctions,
    resolved,
    targets,
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
"""Ids that are no rule's: 1 holds back DNS answers."""
flow = flows_of(Category.NETWORK_POLICY)


class ConjunctionId(Fact, frozen=True):
    """Whose the number of a conjunction is."""

    number: int
    rule: str
    priority: int
    """Of the flow with the rule's action."""

    @property
    def key(self) -> str:
        return str(self.number)


class ClauseMatch(NamedTuple):
    """A match that satisfies one clause of one conjunction."""

    table: Table
    priority: int
    match: tuple[Match, ...]
    action: Action


def number(facts: Facts, found: Conjunction) -> int:
    """The id of a conjunction in flows; it keeps it over restarts."""
    return facts.id(POOL, found.name) + RESERVED


def part(facts: Facts, rule: PolicyRule, found: Conjunction, clause: int, *match: Match) -> ClauseMatch:
    """`match` satisfies a clause of `rule`; every port is no clause."""
    here, clauses = place(facts, rule), SERVICE if found.services else TO
    own = number(facts, found)
    return ClauseMatch(
        here.table, here.match, (*match, *share(own)), action.conjunction(own, clause, clauses)
    )


def share(own: int) -> tuple[Match, ...]:
    """What all flows with conjunctions of this number match beside: no flow has more of them than a message holds.

    They differ in nothing but the mask, under which every packet has 0: it meets one flow of each, and has the conjunctions of all.
    """
    mask = own // action.CONJUNCTIONS
    return (CONJUNCTION_SHARE.within(0, mask),) if mask else ()


def merge(parts: Iterable[ClauseMatch]) -> Iterator[Flow]:
    """One flow for all parts of the same match."""
    found: dict[tuple[Table, int, tuple[Match, ...]], list[Action]] = {}
    for one in parts:
        found.setdefault((one.table, one.priority, one.match), []).append(one.action)
    for (table, priority, match), actions in found.items():
        yield flow(table, priority, *match, then=()).with_parts(actions)


def _each(parts: Iterable[ClauseMatch]) -> Iterator[Flow]:
    """A flow for each part, as they come: those of one conjunction that have the same match are the same."""
    seen: set[tuple[Match, ...]] = set()
    for one in parts:
        if one.match not in seen:
            seen.add(one.match)
            yield flow(one.table, one.priority, *one.match, then=()).with_parts([one.action])


def families(facts: Facts) -> list[bool]:
    """Of the Pods of this Node; True is IPv6."""
    node = facts.get(ThisNode)
    return sorted(node.families) if node else []


def target_matches(here: DirectionTables, pod: PodInterface) -> list[tuple[Match, ...]]:
    """Packets of a Pod that rules are for: by address what it sends, by port what it receives.

    What a machine outside the cluster sends is known by its port, too: it may have more addresses than its ExternalNode lists.
    """
    if here is OUT and pod.uplink:
        return [(in_port(pod.ofport),)]
    if here is OUT:
        return [(src(address),) for address in pod.ips]
    return [(TARGET_OF_PORT(pod.ofport).match,)]


def asked(facts: Facts, pod: PodInterface) -> list[tuple[PolicyRule, cp.GroupMember]]:
    """The rules that are for a Pod; of one that policies of Kubernetes isolate, none on Services that comes after these."""
    found = list(targets(facts, pod))
    isolated = any(rule.isolates and rule.egress and not rule.audit for rule, _ in found)
    return [one for one in found if not (isolated and one[0].pre_dnat and is_baseline(one[0]))]


def unpassed(rule: PolicyRule) -> tuple[Match, ...]:
    """What a packet has beside while rules like this one are asked."""
    return (NOT_SERVICE_RULES_PASSED_REG_MARK.match,) if rule.pre_dnat and not is_baseline(rule) else ()


def only_audited(rule: PolicyRule) -> tuple[Match, ...]:
    """What a packet has beside while an audited rule is asked: it is a copy."""
    return (AUDIT_PASS_REG_MARK.match,) if rule.audit else ()


# units


def target_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """The Pod in the conjunctions of the rules that are for it."""
    matches = {here: target_matches(here, pod) for here in (OUT, IN)}
    yield from merge(
        part(facts, rule, found, side(rule).target, *match, *unpassed(rule), *only_audited(rule))
        for rule, member in asked(facts, pod)
        if has_place(facts, rule)
        for found in own_conjunctions(facts, rule, member, target=True)
        for match in matches[side(rule)]
    )


def peer_clause_flows(facts: Facts, row: SentAddressMember) -> Iterator[Flow | SharedAddress]:
    """A member of a group of peers in the conjunctions of the rules that name the group; not of those that share it."""
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
        part(facts, rule, found, side(rule).peer, dst(address) if rule.egress else src(address))
        for rule in rules
        if has_place(facts, rule)
        for found in own_conjunctions(facts, rule, row.member, target=False)
        for address in addresses
    )


def conjunction_flows(facts: Facts, found: Conjunction) -> Iterator[Flow | ConjunctionId]:
    """What a conjunction has beside Pods: its networks, ports and shared peers, what it does, and its counters."""
    rule = facts.get(PolicyRule, found.rule)
    if rule is None or not has_place(facts, rule):
        return
    versions = families(facts)
    shared = (part(facts, rule, found, side(rule).peer, match) for match in class_matches(facts, rule))
    networks, ports = _network_parts(facts, rule, found, versions), _port_parts(facts, rule, found, versions)
    yield from _each(chain(shared, networks, ports))
    yield from verdict_flows(facts, rule, number(facts, found), versions)
    yield ConjunctionId(number(facts, found), rule.name, place(facts, rule).verdict)


def _network_parts(
    facts: Facts, rule: PolicyRule, found: Conjunction, versions: list[bool]
) -> Iterator[ClauseMatch]:
    """Networks have no ports: with named ones they take part where the numbers are the rule's own."""
    if rule.named and rule.egress and found.services != resolved(rule.services, ()):
        return
    for block in rule.peer.ip_blocks:
        for one in networks(block):
            if (one.version == 6) in versions:
                yield part(facts, rule, found, side(rule).peer, *_network_match(rule, str(one)))


def _network_match(rule: PolicyRule, cidr: str) -> tuple[Match, ...]:
    """Of connections to NodePorts the source may be translated by now; connection tracking has the client's."""
    if rule.on_node_ports:
        return (ct_state("+new"), ct_src(cidr))
    return (dst(cidr) if rule.egress else src(cidr),)


def _port_parts(
    facts: Facts, rule: PolicyRule, found: Conjunction, versions: list[bool]
) -> Iterator[ClauseMatch]:
    for v6 in versions:
        for service in found.services:
            for match in service_matches(service, v6=v6):
                yield part(facts, rule, found, SERVICE, *match)


TARGETS = Unit(PodInterface, target_flows)
PEERS = Unit(SentAddressMember, peer_clause_flows, yields=(SharedAddress,))
CONJUNCTIONS = Unit(Conjunction, conjunction_flows, yields=(ConjunctionId,))
