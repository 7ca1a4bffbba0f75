"""Rules of policies that are for this Node itself: what its own processes and hostNetwork Pods may send and receive.

parity: pkg/agent/controller/networkpolicy/node_reconciler_linux.go
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from antrea.apis import controlplane as cp
from antrea.facts.fact import Fact
from antrea.features.network_policy.agent.node_target import groups_of_node
from antrea.features.network_policy.agent.priority import BASELINE_TIERS
from antrea.features.network_policy.agent.rule import EGRESS, RuleOrder, enforced_action, patterns, rule_order
from antrea.features.network_policy.audit_mode import audit_mode
from antrea.features.network_policy.confirmation import taken_back
from antrea.features.network_policy.hole import Budget
from antrea.features.node_policy.match import named_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.network_policy.agent.received import SentPolicy


class NodeRule(Fact, frozen=True):
    """A rule of a policy that is for this Node; derived."""

    policy: str
    """UID of the policy."""
    number: int
    """Index of the rule among those of the policy, from 0."""
    policy_name: str
    rule: cp.NetworkPolicyRule
    action: str
    order: RuleOrder
    exceeds: bool = False
    """Whether its policy has more exceptions from blocks than are enforced."""
    audit: bool = False
    """Whether it drops nothing, and what it would deny is counted and logged."""
    indexes: ClassVar[Mapping[str, Callable[[NodeRule], Iterable[Hashable]]]] = {
        "policy": lambda row: (row.policy,),
        "fqdn": lambda row: row.fqdns,
        "dns": lambda row: ("dns",) if row.fqdns else (),
    }

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def key(self) -> str:
        return f"{self.policy} {self.number}"

    @property
    def egress(self) -> bool:
        """Whether it is an egress rule."""
        return self.rule.direction == EGRESS

    @property
    def direction(self) -> str:
        """Direction as in names of chains."""
        return "egress" if self.egress else "ingress"

    @property
    def peer(self) -> cp.NetworkPolicyPeer:
        """Senders of an ingress rule, receivers of an egress rule."""
        return self.rule.to if self.egress else self.rule.from_

    @property
    def fqdns(self) -> tuple[str, ...]:
        """Domain names and wildcards that it names."""
        return patterns(self.peer)

    @property
    def baseline(self) -> bool:
        """Whether it is evaluated after all others, also of packets that a Pass rule has matched."""
        return self.order.tier in BASELINE_TIERS


class NodePeerGroup(Fact, frozen=True):
    """An AddressGroup that a `NodeRule` names; derived."""

    group: str

    @property
    def key(self) -> str:
        return self.group


class NodePeerPort(Fact, frozen=True):
    """A port by name of the members of an AddressGroup, which a `NodeRule` on what the Node sends names; derived."""

    group: str
    name: str
    protocol: str
    indexes: ClassVar[Mapping[str, Callable[[NodePeerPort], Iterable[Hashable]]]] = {
        "group": lambda row: (row.group,)
    }

    @property
    def key(self) -> str:
        return f"{self.group} {self.name} {self.protocol}"


class AuditedDirection(Fact, frozen=True):
    """A direction in which some rule is audited; derived."""

    direction: str

    @property
    def key(self) -> str:
        return self.direction


def node_rules(facts: Facts, policy: SentPolicy) -> Iterator[NodeRule]:
    """The rules of one policy that are for this Node."""
    sent, left = policy.policy, Budget()
    if sent.tier_priority is None or taken_back(facts, sent):
        return
    mode = audit_mode(sent.metadata.annotations)
    for number, rule in enumerate(sent.rules):
        exceeds = left.exceeded(rule)
        groups = sent.applied_to_groups or rule.applied_to_groups
        order = rule_order(sent, rule)
        if order is not None and groups_of_node(facts, groups):
            name = sent.source_ref.name if sent.source_ref else policy.key
            action, audit = enforced_action(rule), mode.has(rule.name)
            yield NodeRule(policy.key, number, name, rule, action, order, exceeds, audit)


def audited_directions(_: Facts, rule: NodeRule) -> Iterator[AuditedDirection]:
    """The direction of an audited rule."""
    if rule.audit:
        yield AuditedDirection(rule.direction)


def peer_groups(_: Facts, rule: NodeRule) -> Iterator[NodePeerGroup]:
    """Groups whose addresses are needed as sets."""
    for group in rule.peer.address_groups:
        yield NodePeerGroup(group)


def peer_ports(_: Facts, rule: NodeRule) -> Iterator[NodePeerPort]:
    """Ports by name whose numbers are needed as sets."""
    for group, service in named_ports(rule):
        yield NodePeerPort(group, str(service.port), service.protocol or "TCP")
