"""Rules of policies as the switch knows them: each once, whatever policies state it, and its conjunctions.

A conjunction is a rule for certain port numbers. A rule with named ports has one for each set of numbers that Pods give
them; any other rule has one alone.
parity: pkg/agent/controller/networkpolicy/pod_reconciler.go groupMembersByServices, resolveService
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec

from antrea.apis import controlplane as cp
from antrea.facts.fact import Fact
from antrea.features.feature import Realised
from antrea.features.network_policy.internal import cuts
from antrea.features.network_policy.sent import SentAddressMember, SentAppliedMember, SentPolicy
from antrea.openflow.tables import ANTREA_POLICY_INGRESS_RULE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.ovs import PodInterface

EGRESS, ALLOW = "Out", "Allow"
NAMED = "named"
"""Beside a group, in place of the direction: rules whose ports have the numbers that its members give them."""
SIDES = ("In", EGRESS, NAMED)
LONGEST = 36
"""Characters of a UID."""


class Order(NamedTuple):
    """Of a rule of Antrea's own policies among all of them: lower numbers win, then the older policy, then the smaller UID."""

    tier: int
    policy: float
    rule: int
    created: str
    """Of the policy: RFC 3339 in UTC, whose texts are in the order of time."""
    uid: str

    @property
    def rank(self) -> tuple[float, ...]:
        """Greater where it wins."""
        created, uid = (
            -int.from_bytes(text.encode().ljust(LONGEST, b"\0")) for text in (self.created, self.uid)
        )
        return (-self.tier, -self.policy, -self.rule, created, uid)


class Rule(Fact, frozen=True):
    """One rule, by its content: two policies that state the same are one rule."""

    name: str
    direction: str
    """In or Out."""
    applied: tuple[str, ...]
    """Names of the groups of Pods it is for."""
    peer: cp.NetworkPolicyPeer
    services: tuple[cp.Service, ...]
    """None at all: every port."""
    action: str = ALLOW
    """Allow, Drop, Reject or Pass."""
    order: Order | None = None
    """None: a rule of Kubernetes, where all that is allowed is, and the rest is not."""
    logging: bool = False
    """Whether the agent hears of connections that it decides."""
    cuts: bool = False
    """Whether connections that stand are cut when it forbids them."""
    indexes: ClassVar[Mapping[str, Callable[[Rule], Iterable[Hashable]]]] = {
        "applied": lambda row: row.applied,
        "peer": lambda row: row.peers,
        "service": lambda row: row.to_services,
    }

    @property
    def key(self) -> str:
        return self.name

    @property
    def egress(self) -> bool:
        """Whether it is on what Pods send."""
        return self.direction == EGRESS

    @property
    def isolates(self) -> bool:
        """Whether its Pods are closed to what no such rule allows."""
        return self.order is None

    @property
    def selects(self) -> bool:
        """Whether there can be a peer: without, the Pods are isolated, and that is all."""
        return bool(self.peer.address_groups or self.peer.ip_blocks or self.peer.to_services)

    @property
    def to_services(self) -> tuple[str, ...]:
        """Namespace and name of each Service that it names."""
        return tuple(f"{one.namespace}/{one.name}" for one in self.peer.to_services)

    @property
    def named(self) -> bool:
        """Whether it has a port that each Pod may give another number."""
        return any(isinstance(service.port, str) for service in self.services)

    @property
    def by_member(self) -> bool:
        """Whether its ports have the numbers that its peers give them."""
        return self.egress and self.named

    @property
    def peers(self) -> tuple[str, ...]:
        """The groups of its peers, with what tells apart rules that may share their addresses."""
        side = NAMED if self.by_member else self.direction
        return tuple(f"{group} {side}" for group in self.peer.address_groups)


class Stated(Fact, frozen=True):
    """That a policy states a rule."""

    policy: str
    number: int
    """Of the rule among those of the policy, from 0."""
    rule: str
    indexes: ClassVar[Mapping[str, Callable[[Stated], Iterable[Hashable]]]] = {
        "rule": lambda row: (row.rule,)
    }

    @property
    def key(self) -> str:
        return f"{self.policy} {self.number}"


class Conjunction(Fact, frozen=True):
    """A rule with port numbers: what the switch knows by one number."""

    name: str
    rule: str
    services: tuple[cp.Service, ...]
    indexes: ClassVar[Mapping[str, Callable[[Conjunction], Iterable[Hashable]]]] = {
        "rule": lambda row: (row.rule,)
    }

    @property
    def key(self) -> str:
        return self.name


def digest(*content: object) -> str:
    """A name that equal content has on every Node and after every start."""
    return blake2b(msgspec.json.encode(content), digest_size=16).hexdigest()


def resolved(
    services: tuple[cp.Service, ...], ports: Iterable[cp.NamedPort]
) -> tuple[cp.Service, ...] | None:
    """`services` with numbers for names; those that nobody has are left out. None: there is none left, so no port matches."""
    # Of ports with the same name the first counts.
    numbers = {(port.name, port.protocol): port.port for port in reversed(tuple(ports))}
    found: dict[cp.Service, None] = {}
    for service in services:
        if not isinstance(service.port, str):
            found[service] = None
        elif (number := numbers.get((service.port, service.protocol or "TCP"))) is not None:
            found[msgspec.structs.replace(service, port=number, end_port=None)] = None
    return tuple(found) if found or not services else None


def conjunction(rule: Rule, services: tuple[cp.Service, ...]) -> Conjunction:
    """The one of `rule` for these ports."""
    name = rule.name if services == rule.services else digest(rule.name, services)
    return Conjunction(name, rule.name, services)


def conjunctions(facts: Facts, rule: Rule) -> list[Conjunction]:
    """All there are of a rule."""
    return facts.by(Conjunction, "rule", rule.name) if rule.named else list(_of_ports(rule, ()))


def targets(facts: Facts, pod: PodInterface) -> Iterator[tuple[Rule, cp.GroupMember]]:
    """The rules that are for a Pod of this Node, each once, with what the Pod is called there."""
    seen: set[str] = set()
    for row in facts.by(SentAppliedMember, "pod", pod.pod):
        for rule in facts.by(Rule, "applied", row.group):
            if rule.name not in seen:
                seen.add(rule.name)
                yield rule, row.member


def own_conjunctions(
    facts: Facts, rule: Rule, member: cp.GroupMember, *, target: bool
) -> Iterable[Conjunction]:
    """Those in which this Pod takes part: it has ports as the destination, so that it knows one of a rule with named ports."""
    if rule.named and target != rule.egress:
        return _of_ports(rule, member.ports)
    return conjunctions(facts, rule)


def _of_ports(rule: Rule, ports: Iterable[cp.NamedPort]) -> Iterator[Conjunction]:
    services = resolved(rule.services, ports) if rule.selects else None
    if services is not None:
        yield conjunction(rule, services)


# units


def rules(facts: Facts, policy: SentPolicy) -> Iterator[Rule | Stated]:
    """The rules of one policy; none of one of Antrea's while the gate is off."""
    found = policy.found
    if found.tier_priority is not None:
        realised = facts.get(Realised)
        if realised is None or not realised.pipeline.has(ANTREA_POLICY_INGRESS_RULE):
            return
    for number, rule in enumerate(found.rules):
        content = (
            rule.direction,
            tuple(sorted(found.applied_to_groups or rule.applied_to_groups)),
            rule.to if rule.direction == EGRESS else rule.from_,
            rule.services,
            _action(rule),
            _order(found, rule),
            rule.enable_logging,
        )
        cut = cuts(found.metadata.annotations)
        name = digest(*content, *(["cuts"] if cut else ()))
        yield Rule(name, *content, cuts=cut)
        yield Stated(policy.key, number, name)


def _action(rule: cp.NetworkPolicyRule) -> str:
    """What no engine looks into is closed: an application protocol that is to be allowed."""
    return "Drop" if rule.l7_protocols else rule.action or ALLOW


def _order(policy: cp.NetworkPolicy, rule: cp.NetworkPolicyRule) -> Order | None:
    if policy.tier_priority is None:
        return None
    meta = policy.metadata
    return Order(
        policy.tier_priority, policy.priority or 0.0, rule.priority, meta.creation_timestamp, meta.uid
    )


def rule_conjunctions(_: Facts, rule: Rule) -> Iterator[Conjunction]:
    """That of a rule without named ports; of one on what Pods send, also that of peers which are no Pods."""
    if not rule.named or (rule.egress and (rule.peer.ip_blocks or rule.peer.to_services)):
        yield from _of_ports(rule, ())


def target_conjunctions(facts: Facts, pod: PodInterface) -> Iterator[Conjunction]:
    """Of rules on what the Pod receives, for the numbers it gives to the ports that they name."""
    for rule, member in targets(facts, pod):
        if rule.named and not rule.egress:
            yield from _of_ports(rule, member.ports)


def peer_conjunctions(facts: Facts, group: str) -> Iterator[Conjunction]:
    """Of rules on what is sent to peers of this group, for the numbers they give to the ports that rules name."""
    found = facts.by(Rule, "peer", f"{group} {NAMED}")
    members = facts.by(SentAddressMember, "group", group) if found else []
    for ports in dict.fromkeys(row.member.ports for row in members):
        for rule in found:
            yield from _of_ports(rule, ports)
