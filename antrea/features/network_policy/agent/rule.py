"""Rules of policies as the switch has them: each once, whatever policies state it, and its conjunctions.

A conjunction is a rule for certain port numbers. A rule with named ports has one for each set of numbers that Pods give them;
any other rule has exactly one.
parity: pkg/agent/controller/networkpolicy/pod_reconciler.go groupMembersByServices, resolveService
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec

from antrea.apis import controlplane as cp
from antrea.facts.fact import Fact
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.node_target import groups_of_node
from antrea.features.network_policy.agent.received import SentAddressMember, SentAppliedMember, SentPolicy
from antrea.features.network_policy.agent.service_target import target_services
from antrea.features.network_policy.audit_mode import audit_mode
from antrea.features.network_policy.confirmation import taken_back
from antrea.features.network_policy.hole import Budget
from antrea.features.network_policy.internal_policy import flush_on_deny
from antrea.openflow.tables import ANTREA_POLICY_INGRESS_RULE, DNAT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.ovs import PodInterface

EGRESS, ALLOW = "Out", "Allow"
NAMED = "named"
"""Index value beside a group, in place of the direction: rules whose ports have the numbers that its members give them."""
SIDES = ("In", EGRESS, NAMED)
HELD, COPIED = "held", "copied"
"""Values of the index of rules on names: whether the DNS answers that they need are held or copied."""
L7 = "l7"
"""Value of the index of rules with application protocols."""
MAX_LENGTH = 36
"""Maximum number of characters of a UID."""


class RuleOrder(NamedTuple):
    """Order of a rule of Antrea's own policies among all of them: lower numbers win, then the older policy, then the smaller
    UID.
    """

    tier: int
    policy: float
    rule: int
    created: str
    """Creation of the policy: RFC 3339 in UTC, which sorts by time."""
    uid: str

    @property
    def rank(self) -> tuple[float, ...]:
        """Rank, greater for the rule that wins."""
        created, uid = (
            -int.from_bytes(text.encode().ljust(MAX_LENGTH, b"\0")) for text in (self.created, self.uid)
        )
        return (-self.tier, -self.policy, -self.rule, created, uid)


class PolicyRule(Fact, frozen=True):
    """Rule, identified by its content: two policies that state the same are one rule."""

    name: str
    direction: str
    """In or Out."""
    applied: tuple[str, ...]
    """Names of the groups of Pods that the rule is for."""
    peer: cp.NetworkPolicyPeer
    services: tuple[cp.Service, ...]
    """Ports; none at all is every port."""
    action: str = ALLOW
    """Allow, Drop, Reject or Pass."""
    order: RuleOrder | None = None
    """Order; None for a rule of Kubernetes, where everything allowed is, and the rest is not."""
    logging: bool = False
    """Whether the agent gets the packets that it decides."""
    flush_on_deny: bool = False
    """Whether established connections are cut when it forbids them."""
    exceeds: bool = False
    """Whether its policy has more exceptions from blocks than are enforced."""
    audit: bool = False
    """Whether it drops nothing: it judges a copy of what passes."""
    pre_dnat: bool = False
    """Whether it judges packets to Services by the address of the Service, as kube-proxy translates them later."""
    on_node_ports: bool = False
    """Whether it is for Services: it judges connections to NodePorts by the address of the client before any translation."""
    l7_protocols: tuple[cp.L7Protocol, ...] = ()
    """Application protocols that the L7 engine lets pass of the connections that it allows; empty for all."""
    indexes: ClassVar[Mapping[str, Callable[[PolicyRule], Iterable[Hashable]]]] = {
        "applied": lambda row: row.applied,
        "peer": lambda row: row.peers,
        "service": lambda row: row.to_services,
        "fqdn": lambda row: row.fqdns,
        "dns": lambda row: ((COPIED if row.audit else HELD),) if row.fqdns else (),
        "l7": lambda row: (L7,) if row.l7_protocols else (),
    }

    @property
    def key(self) -> str:
        return self.name

    @property
    def egress(self) -> bool:
        """Whether it is an egress rule."""
        return self.direction == EGRESS

    @property
    def isolates(self) -> bool:
        """Whether its Pods are closed to what no such rule allows."""
        return self.order is None

    @property
    def selects(self) -> bool:
        """Whether there can be a peer: without, the rule only isolates the Pods."""
        return bool(self.peer.address_groups or self.peer.ip_blocks or self.peer.to_services or self.fqdns)

    @property
    def fqdns(self) -> tuple[str, ...]:
        """Domain names and wildcards that it names."""
        return patterns(self.peer)

    @property
    def to_services(self) -> tuple[str, ...]:
        """Namespace and name of each Service that it names."""
        return tuple(f"{service.namespace}/{service.name}" for service in self.peer.to_services)

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
        """Groups of its peers, with what separates rules that may share their addresses."""
        side = NAMED if self.by_member else self.direction
        return tuple(f"{group} {side}" for group in self.peer.address_groups)


class StatedRule(Fact, frozen=True):
    """Rule that a policy states."""

    policy: str
    number: int
    """Index of the rule among those of the policy, from 0."""
    rule: str
    indexes: ClassVar[Mapping[str, Callable[[StatedRule], Iterable[Hashable]]]] = {
        "rule": lambda row: (row.rule,)
    }

    @property
    def key(self) -> str:
        return f"{self.policy} {self.number} {self.rule}"


class Conjunction(Fact, frozen=True):
    """Rule with port numbers: one conjunction of the switch."""

    name: str
    rule: str
    services: tuple[cp.Service, ...]
    indexes: ClassVar[Mapping[str, Callable[[Conjunction], Iterable[Hashable]]]] = {
        "rule": lambda row: (row.rule,)
    }

    @property
    def key(self) -> str:
        return self.name


def patterns(peer: cp.NetworkPolicyPeer) -> tuple[str, ...]:
    """Return domain names and wildcards, each once, in lower case and without the dot of the root."""
    return tuple(dict.fromkeys(name.lower().rstrip(".") for name in peer.fqdns))


def digest(*content: object) -> str:
    """Return a name that equal content has on every Node and after every start."""
    return blake2b(msgspec.json.encode(content), digest_size=16).hexdigest()


def resolved(
    services: tuple[cp.Service, ...], ports: Iterable[cp.NamedPort]
) -> tuple[cp.Service, ...] | None:
    """Return `services` with numbers for names; those that no Pod has are left out. None if none is left, so that no port
    matches.
    """
    # Of ports with the same name the first counts; without a protocol, which admin policies leave out, whatever its protocol.
    known = {
        (port.name, protocol): port for port in reversed(tuple(ports)) for protocol in (port.protocol, None)
    }
    numbered: dict[cp.Service, None] = {}
    for service in services:
        if not isinstance(service.port, str):
            numbered[service] = None
        elif (port := known.get((service.port, service.protocol))) is not None:
            resolved_service = msgspec.structs.replace(
                service, protocol=port.protocol, port=port.port, end_port=None
            )
            numbered[resolved_service] = None
    return tuple(numbered) if numbered or not services else None


def conjunction(rule: PolicyRule, services: tuple[cp.Service, ...]) -> Conjunction:
    """Make the conjunction of `rule` for these ports."""
    name = rule.name if services == rule.services else digest(rule.name, services)
    return Conjunction(name, rule.name, services)


def conjunctions(facts: Facts, rule: PolicyRule) -> list[Conjunction]:
    """Return all conjunctions of a rule."""
    return facts.by(Conjunction, "rule", rule.name) if rule.named else list(_of_ports(rule, ()))


def rules_with_member(facts: Facts, pod: PodInterface) -> Iterator[tuple[PolicyRule, cp.GroupMember]]:
    """Yield the rules for a Pod of this Node, each once, with the Pod as their member."""
    seen: set[str] = set()
    for row in facts.by(SentAppliedMember, "pod", pod.pod):
        for rule in facts.by(PolicyRule, "applied", row.group):
            if rule.name not in seen:
                seen.add(rule.name)
                yield rule, row.member


def member_conjunctions(
    facts: Facts, rule: PolicyRule, member: cp.GroupMember, *, target: bool
) -> Iterable[Conjunction]:
    """Return the conjunctions in which a member takes part: as the destination its ports choose among those of a rule with
    named ports.
    """
    if rule.named and target != rule.egress:
        return _of_ports(rule, member.ports)
    return conjunctions(facts, rule)


def _of_ports(rule: PolicyRule, ports: Iterable[cp.NamedPort]) -> Iterator[Conjunction]:
    services = resolved(rule.services, ports) if rule.selects else None
    if services is not None:
        yield conjunction(rule, services)


# units


def rules(facts: Facts, policy: SentPolicy) -> Iterator[PolicyRule | StatedRule]:
    """Yield the rules of one policy that are for Pods; none of Antrea's own while the gate is off."""
    source = policy.policy
    pipeline = realized.pipeline if (realized := facts.get(RealizedPipeline)) else None
    if source.tier_priority is not None and (
        pipeline is None or not pipeline.has(ANTREA_POLICY_INGRESS_RULE)
    ):
        return
    if taken_back(facts, source):
        return
    cut, left = flush_on_deny(source.metadata.annotations), Budget()
    mode = audit_mode(source.metadata.annotations)
    for number, rule in enumerate(source.rules):
        exceeds = left.exceeded(rule)
        audit, cuts = mode.has(rule.name), cut and not mode.has(rule.name)
        flags = {"cuts": cuts, "exceeds": exceeds, "audit": audit}
        pre_dnat = bool(rule.to.to_services) and pipeline is not None and pipeline.has(DNAT)
        for groups, on_node_ports in _targets_of(facts, source, rule):
            # with another action, which admission refuses, all that the rule names is dropped
            can_look = not on_node_ports and (rule.action or ALLOW) == ALLOW
            looked_into = rule.l7_protocols if can_look else ()
            if audit and (pre_dnat or on_node_ports):
                continue  # absent, as an audited rule is; nothing judges a copy by it
            content = (
                rule.direction,
                groups,
                rule.to if rule.direction == EGRESS else rule.from_,
                rule.services,
                ALLOW if looked_into else enforced_action(rule),
                rule_order(source, rule),
                rule.enable_logging,
            )
            name = digest(*content, *(flag for flag, is_set in flags.items() if is_set))
            if looked_into:
                # one of its own, which it keeps when it is edited: connections that it let in stay with its tenant of the engine
                name = digest(
                    L7, policy.key, rule.direction, rule.name or number, _count_before(source, number)
                )
            yield PolicyRule(
                *(name, *content),
                flush_on_deny=cuts,
                exceeds=exceeds,
                audit=audit,
                pre_dnat=pre_dnat,
                on_node_ports=on_node_ports,
                l7_protocols=looked_into,
            )
            yield StatedRule(policy.key, number, name)


def _count_before(policy: cp.NetworkPolicy, number: int) -> int:
    """Count rules of the same direction and name before this one: a rule on related Namespaces is sent as one for each set of
    these.
    """
    this = policy.rules[number]
    return sum(
        rule.direction == this.direction and rule.name == this.name
        for rule in policy.rules[:number]
        if this.name
    )


def _targets_of(
    facts: Facts, policy: cp.NetworkPolicy, rule: cp.NetworkPolicyRule
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield groups of Pods that a rule is for, and those of Services with True; none if all are of this Node itself."""
    groups = policy.applied_to_groups or rule.applied_to_groups
    own_groups = groups_of_node(facts, groups)
    judges = rule.direction != EGRESS and policy.tier_priority is not None
    services = [group for group in groups if target_services(facts, (group,))] if judges else []
    rest = {*groups} - {*own_groups, *services}
    if rest or not groups:
        yield tuple(sorted(rest)), False
    if services:
        yield tuple(sorted({*services})), True


def enforced_action(rule: cp.NetworkPolicyRule) -> str:
    """Return the action on Nodes and machines, where no engine inspects packets: allowed application protocols are closed."""
    return "Drop" if rule.l7_protocols else rule.action or ALLOW


def rule_order(policy: cp.NetworkPolicy, rule: cp.NetworkPolicyRule) -> RuleOrder | None:
    """Return the order among all rules; None for a rule of Kubernetes."""
    if policy.tier_priority is None:
        return None
    meta = policy.metadata
    return RuleOrder(
        policy.tier_priority, float(policy.priority or 0), rule.priority, meta.creation_timestamp, meta.uid
    )


def rule_conjunctions(_: Facts, rule: PolicyRule) -> Iterator[Conjunction]:
    """Yield the conjunction of a rule without named ports, or with peers or targets other than Pods."""
    no_pods = rule.egress and (rule.peer.ip_blocks or rule.peer.to_services or rule.fqdns)
    if not rule.named or no_pods or rule.on_node_ports:
        yield from _of_ports(rule, ())


def target_conjunctions(facts: Facts, pod: PodInterface) -> Iterator[Conjunction]:
    """Yield conjunctions of ingress rules, for the numbers that the Pod gives to named ports."""
    for rule, member in rules_with_member(facts, pod):
        if rule.named and not rule.egress:
            yield from _of_ports(rule, member.ports)


def peer_conjunctions(facts: Facts, group: str) -> Iterator[Conjunction]:
    """Yield conjunctions of egress rules, for the numbers that peers of this group give to named ports."""
    by_member = facts.by(PolicyRule, "peer", f"{group} {NAMED}")
    members = facts.by(SentAddressMember, "group", group) if by_member else []
    for ports in dict.fromkeys(row.member.ports for row in members):
        for rule in by_member:
            yield from _of_ports(rule, ports)
