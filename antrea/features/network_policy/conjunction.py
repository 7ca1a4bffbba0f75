"""Flows of rules: who takes part in a conjunction, and what isolates the Pods that rules are for.

A flow that several conjunctions want for one match unites them, so that each yields its own part of it.
parity: pkg/agent/openflow/network_policy.go, pipeline.go conjunctiveMatchFlow, defaultDropFlow
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.facts.fact import Fact
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.features.network_policy.address import address_text, networks, service_matches
from antrea.features.network_policy.packet_in import told_drop
from antrea.features.network_policy.peer_class import Shared, SharedAddress, class_matches
from antrea.features.network_policy.place import (
    CLOSED,
    IN,
    OUT,
    POOL,
    SERVICE,
    TO,
    Side,
    has_place,
    is_baseline,
    place,
    rule_table,
    side,
)
from antrea.features.network_policy.rule import (
    ALLOW,
    SIDES,
    Conjunction,
    Rule,
    own_conjunctions,
    resolved,
    targets,
)
from antrea.features.network_policy.unenforced import missing, why_not
from antrea.features.network_policy.verdict import verdict_flows
from antrea.openflow import action
from antrea.openflow.action import DROP
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    CONJUNCTION_SHARE,
    NOT_SERVICE_RULES_PASSED_REG_MARK,
    TARGET_OF_PORT,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import dst, src
from antrea.openflow.priority import Priority

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis import controlplane as cp
    from antrea.engine import Facts
    from antrea.facts.ovs import PodInterface
    from antrea.features.network_policy.sent import SentAddressMember
    from antrea.features.network_policy.unenforced import Missing
    from antrea.openflow.field import Action, Match
    from antrea.openflow.table import Table

RESERVED = 1
"""Ids that are no rule's: 1 holds back DNS answers."""
ISOLATES = 45
"""Isolation stands before the rules that make exceptions from it, and goes after them."""
flow = flows_of(Category.NETWORK_POLICY)
isolation = flows_of(Category.NETWORK_POLICY, rank=ISOLATES)


class Numbered(Fact, frozen=True):
    """Whose the number of a conjunction is."""

    number: int
    rule: str
    priority: int
    """Of the flow that says what the rule does."""

    @property
    def key(self) -> str:
        return str(self.number)


class Part(NamedTuple):
    """A match that satisfies one clause of one conjunction."""

    table: Table
    priority: int
    match: tuple[Match, ...]
    action: Action


def number(facts: Facts, found: Conjunction) -> int:
    """The id of a conjunction in flows; it keeps it over restarts."""
    return facts.id(POOL, found.name) + RESERVED


def part(facts: Facts, rule: Rule, found: Conjunction, clause: int, *match: Match) -> Part:
    """`match` satisfies a clause of `rule`; every port is no clause."""
    here, clauses = place(facts, rule), SERVICE if found.services else TO
    own = number(facts, found)
    return Part(here.table, here.match, (*match, *share(own)), action.conjunction(own, clause, clauses))


def share(own: int) -> tuple[Match, ...]:
    """What all flows with conjunctions of this number match beside: no flow has more of them than a message holds.

    They differ in nothing but the mask, under which every packet has 0: it meets one flow of each, and has the conjunctions of all.
    """
    mask = own // action.CONJUNCTIONS
    return (CONJUNCTION_SHARE.within(0, mask),) if mask else ()


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


def target_matches(here: Side, pod: PodInterface) -> list[tuple[Match, ...]]:
    """Packets of a Pod that rules are for: by address what it sends, by port what it receives."""
    if here is OUT:
        return [(src(address),) for address in pod.ips]
    return [(TARGET_OF_PORT(pod.ofport).match,)]


def asked(facts: Facts, pod: PodInterface) -> list[tuple[Rule, cp.GroupMember]]:
    """The rules that are for a Pod; of one that policies of Kubernetes isolate, none on Services that comes after these."""
    found = list(targets(facts, pod))
    isolated = any(rule.isolates and rule.egress for rule, _ in found)
    return [one for one in found if not (isolated and one[0].to_services and is_baseline(one[0]))]


def unpassed(rule: Rule) -> tuple[Match, ...]:
    """What a packet has beside while rules like this one are asked."""
    return (NOT_SERVICE_RULES_PASSED_REG_MARK.match,) if rule.to_services and not is_baseline(rule) else ()


def closing_table(facts: Facts, lacks: Missing, rule: Rule, pod: PodInterface) -> Table | None:
    """Where the Pod, which the rule is for, is closed to what nothing before allows; None if it is not, for its sake."""
    if rule.isolates:
        return side(rule).default
    return rule_table(rule) if rule.action != ALLOW and why_not(facts, lacks, rule, pod.key) else None


# units


def isolation_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """What no rule allows is dropped, in each direction in which a rule is for the Pod.

    A job of its own: it stands also if the rules are too many for one message. A rule that cannot be enforced, and is
    there to forbid, closes its Pods: at its table, so that those of the baseline leave open what others allow.
    """
    lacks = missing(facts)
    closed: dict[tuple[Side, Table], bool] = {}
    for rule, _ in asked(facts, pod):
        if (table := closing_table(facts, lacks, rule, pod)) is not None:
            closed[side(rule), table] = closed.get((side(rule), table), False) or (
                rule.isolates and rule.logging
            )
    for (here, table), logging in closed.items():
        priority = Priority.NORMAL if table is here.default else CLOSED
        then = told_drop(facts, table) if logging else DROP
        for match in target_matches(here, pod):
            yield isolation(table, priority, *match, then=then)


def target_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """The Pod in the conjunctions of the rules that are for it."""
    matches = {here: target_matches(here, pod) for here in (OUT, IN)}
    yield from united(
        part(facts, rule, found, side(rule).target, *match, *unpassed(rule))
        for rule, member in asked(facts, pod)
        if has_place(facts, rule)
        for found in own_conjunctions(facts, rule, member, target=True)
        for match in matches[side(rule)]
    )


def peer_flows(facts: Facts, row: SentAddressMember) -> Iterator[Flow | SharedAddress]:
    """A member of a group of peers in the conjunctions of the rules that name the group; not of those that share it."""
    addresses = [address_text(packed) for packed in row.member.ips]
    rules: list[Rule] = []
    for direction in SIDES:
        named = f"{row.group} {direction}"
        if facts.get(Shared, named) is None:
            rules += facts.by(Rule, "peer", named)
            continue
        for address in addresses:
            yield SharedAddress(named, direction, address)
    yield from united(
        part(facts, rule, found, side(rule).peer, dst(address) if rule.egress else src(address))
        for rule in rules
        if has_place(facts, rule)
        for found in own_conjunctions(facts, rule, row.member, target=False)
        for address in addresses
    )


def conjunction_flows(facts: Facts, found: Conjunction) -> Iterator[Flow | Numbered]:
    """What a conjunction has beside Pods: its networks, ports and shared peers, what it does, and its counters."""
    rule = facts.get(Rule, found.rule)
    if rule is None or not has_place(facts, rule):
        return
    versions = families(facts)
    shared = (part(facts, rule, found, side(rule).peer, match) for match in class_matches(facts, rule))
    networks, ports = _network_parts(facts, rule, found, versions), _port_parts(facts, rule, found, versions)
    yield from united((*shared, *networks, *ports))
    yield from verdict_flows(facts, rule, number(facts, found), versions)
    yield Numbered(number(facts, found), rule.name, place(facts, rule).verdict)


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
