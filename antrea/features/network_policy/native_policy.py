"""ClusterNetworkPolicies and NetworkPolicies of Antrea: from what a user wrote to what agents need.

parity: pkg/controller/networkpolicy/{antreaclusternetworkpolicy,antreanetworkpolicy}.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis.crd.network_policy import (
    ClusterNetworkPolicy,
    ClusterNetworkPolicySpec,
    NetworkPolicy,
    NetworkPolicySpec,
)
from antrea.apis.meta import ObjectMetadata
from antrea.facts.fact import Fact
from antrea.features.admission import Watched
from antrea.features.network_policy.internal import Internal, cuts, told_annotations
from antrea.features.network_policy.native_namespace import related
from antrea.features.network_policy.native_peer import Chosen, applications, services, side, targets
from antrea.features.network_policy.tier import CRD, DEFAULT, DEFAULT_TIERS, STATIC, TierRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from antrea.apis.crd.network_policy import Rule
    from antrea.engine import Facts
    from antrea.features.grouping.publication import GroupHead

CLUSTER, NAMESPACED = "AntreaClusterNetworkPolicy", "AntreaNetworkPolicy"
PRIORITIES = {tier.metadata.name: tier.spec.priority for tier in DEFAULT_TIERS}
NOBODY = cp.NetworkPolicyPeer()


class NamespacedPolicy(Fact, frozen=True):
    """A NetworkPolicy of crd.antrea.io; its feed writes it."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: ClusterNetworkPolicySpec | NetworkPolicySpec
    created: str = ""
    """RFC 3339 in UTC; of policies that are equal otherwise, the older goes first."""
    cuts: bool = False
    """What it comes to forbid is cut."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClusterPolicy(NamespacedPolicy, frozen=True):
    """A ClusterNetworkPolicy, whose Namespace is empty: another feed, so another kind."""


class InternalPolicy(Internal, frozen=True):
    """A policy as agents need it, and what decides to which Nodes it goes; derived."""

    source: cp.NetworkPolicyReference
    targets: tuple[str, ...]
    """Names of the groups that it, or one of its rules, is for."""
    peers: tuple[str, ...]
    """Names of the groups of its peers."""


class Draft(msgspec.Struct, frozen=True):
    """A rule, and the groups that it names."""

    rule: cp.NetworkPolicyRule
    targets: tuple[Chosen, ...]
    peers: tuple[Chosen, ...]


def internal_policy(facts: Facts, policy: NamespacedPolicy) -> Iterator[Fact | GroupHead]:
    """The policy and the groups that it names, which it shares with all that name the same."""
    spec = policy.spec
    own = () if _splits(policy) else targets(facts, policy.namespace, spec.applied_to)
    drafts = [
        draft
        for direction, rules in (("In", spec.ingress), ("Out", spec.egress))
        for number, rule in enumerate(rules)
        for draft in _drafts(facts, policy, rule, (direction, number))
    ]
    aims = [*own, *(one for draft in drafts for one in draft.targets)]
    peers = [one for draft in drafts for one in draft.peers]
    for one in (*aims, *peers):
        yield from one.rows
    source = cp.NetworkPolicyReference(
        type=NAMESPACED if policy.namespace else CLUSTER,
        namespace=policy.namespace,
        name=policy.name,
        uid=policy.uid,
    )
    found = cp.NetworkPolicy(
        metadata=ObjectMetadata(
            name=policy.uid,
            uid=policy.uid,
            generation=policy.generation,
            creation_timestamp=policy.created,
            annotations=told_annotations(cuts=policy.cuts),
        ),
        rules=tuple(draft.rule for draft in drafts),
        applied_to_groups=_names(own),
        priority=spec.priority,
        tier_priority=tier_priority(facts, spec.tier),
        source_ref=source,
    )
    yield InternalPolicy(found, source, _names(aims), _names(peers))


def _names(chosen: list[Chosen] | tuple[Chosen, ...]) -> tuple[str, ...]:
    return tuple(sorted({one.name for one in chosen}))


def tier_priority(facts: Facts, name: str) -> int:
    """Of the Tier, by any of the names that policies may use; a default Tier counts before it has been created."""
    known = name.lower() if name in STATIC else name or DEFAULT
    row = facts.get(TierRow, known)
    return row.priority if row else PRIORITIES.get(known, PRIORITIES[DEFAULT])


def _drafts(facts: Facts, policy: NamespacedPolicy, rule: Rule, place: tuple[str, int]) -> Iterator[Draft]:
    """One rule, or, of peers in relation to Namespaces, one for each set of these."""
    direction, _ = place
    everywhere = [peer for peer in (*rule.from_, *rule.to) if peer.namespaces is None]
    relative = [peer for peer in (*rule.from_, *rule.to) if peer.namespaces is not None]
    # what is split by Namespace says of each rule by itself whom it is for
    applied = rule.applied_to or (policy.spec.applied_to if _splits(policy) else ())
    if everywhere or not relative:
        aims = targets(facts, policy.namespace, applied)
        found = side(facts, policy.namespace, rule, everywhere, direction)
        yield Draft(_rule(rule, place, found.peer, aims), aims, found.groups)
    for aims, peers in related(facts, applied, relative) if relative else ():
        told = cp.NetworkPolicyPeer(address_groups=tuple(dict.fromkeys(one.name for one in peers)))
        yield Draft(_rule(rule, place, told, aims), aims, peers)


def _splits(policy: NamespacedPolicy) -> bool:
    rules = (*policy.spec.ingress, *policy.spec.egress)
    return any(peer.namespaces for rule in rules for peer in (*rule.from_, *rule.to))


def _rule(
    rule: Rule, place: tuple[str, int], peer: cp.NetworkPolicyPeer, aims: tuple[Chosen, ...]
) -> cp.NetworkPolicyRule:
    direction, number = place
    return cp.NetworkPolicyRule(
        direction=direction,
        from_=peer if direction == "In" else NOBODY,
        to=peer if direction == "Out" else NOBODY,
        services=services(rule),
        priority=number,
        action=rule.action,
        enable_logging=rule.enable_logging,
        applied_to_groups=tuple(dict.fromkeys(one.name for one in aims)),
        name=rule.name,
        l7_protocols=applications(rule),
        log_label=rule.log_label,
    )


def _row(kind: type[NamespacedPolicy]) -> Callable[[Any], NamespacedPolicy]:
    def row(found: Any) -> NamespacedPolicy:
        meta = found.metadata
        born, cut = meta.creation_timestamp, cuts(meta.annotations)
        return kind(meta.namespace, meta.name, meta.uid, meta.generation, found.spec, born, cut)

    return row


cluster_policy_row, policy_row = _row(ClusterPolicy), _row(NamespacedPolicy)
WATCHED = (
    Watched(
        f"{CRD}/clusternetworkpolicies", ClusterNetworkPolicy, ClusterPolicy, cluster_policy_row, guards="all"
    ),
    Watched(f"{CRD}/networkpolicies", NetworkPolicy, NamespacedPolicy, policy_row, guards="its own"),
)
