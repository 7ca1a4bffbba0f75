"""ClusterNetworkPolicies and NetworkPolicies of Antrea: conversion of the user's spec to the internal policy.

parity: pkg/controller/networkpolicy/{antreaclusternetworkpolicy,antreanetworkpolicy}.go
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis.crd.network_policy import (
    ClusterNetworkPolicy,
    ClusterNetworkPolicySpec,
    NetworkPolicy,
    NetworkPolicySpec,
)
from antrea.apis.meta import ObjectMetadata, as_number
from antrea.apis.shown import one_line
from antrea.facts.cluster import Namespace
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched
from antrea.features.network_policy.audit_mode import ENFORCED, AuditMode, audit_mode
from antrea.features.network_policy.confirmation import unconfirmed_seconds
from antrea.features.network_policy.controller.antrea_peer import (
    ChosenGroup,
    applications,
    rule_peers,
    services,
    targets,
)
from antrea.features.network_policy.controller.named_port import names_ports, port_rows
from antrea.features.network_policy.controller.namespace_peer import related
from antrea.features.network_policy.controller.realization import MAX_PARTS
from antrea.features.network_policy.controller.unbuilt import unheld_parts, unjudged_parts
from antrea.features.network_policy.internal_policy import (
    InternalPolicyFields,
    flush_on_deny,
    in_portions,
    published_annotations,
)
from antrea.features.network_policy.tier import CRD, DEFAULT, DEFAULT_TIERS, STATIC, TierRow

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from typing import Any

    from antrea.apis.crd.network_policy import AppliedTo, Rule
    from antrea.engine import Facts
    from antrea.features.network_policy.controller.antrea_peer import Row

CLUSTER, NAMESPACED = "AntreaClusterNetworkPolicy", "AntreaNetworkPolicy"
PRIORITIES = {tier.metadata.name: tier.spec.priority for tier in DEFAULT_TIERS}
MAX_NAME = 63
"""Maximum number of characters of a rule's name in a condition."""
NOBODY = cp.NetworkPolicyPeer()


class NamespacedPolicy(Fact, frozen=True):
    """NetworkPolicy of crd.antrea.io; its feed writes it."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: ClusterNetworkPolicySpec | NetworkPolicySpec
    created: str = ""
    """Creation in RFC 3339, UTC; among otherwise equal policies, the older has precedence."""
    flush_on_deny: bool = False
    """Whether established connections are cut when it forbids them."""
    confirm_seconds: int = 0
    """Seconds within which this generation must be confirmed; 0 if it is permanent."""
    audit: AuditMode = ENFORCED

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClusterPolicy(NamespacedPolicy, frozen=True):
    """ClusterNetworkPolicy, whose Namespace is empty: it has another feed, so another kind."""


class InternalPolicy(InternalPolicyFields, frozen=True):
    """Policy as sent to agents, and what decides to which Nodes it goes; derived."""

    source: cp.NetworkPolicyReference
    targets: tuple[str, ...]
    """Names of the groups that it, or one of its rules, is for."""
    peers: tuple[str, ...]
    """Names of the groups of its peers."""
    unheld: tuple[str, ...] = ()
    """Parts that no switch enforces."""
    audited: str = ""
    """Description of the audited parts."""
    audit: AuditMode = ENFORCED


class Draft(msgspec.Struct, frozen=True):
    """Rule, and the groups that it names."""

    rule: cp.NetworkPolicyRule
    targets: tuple[ChosenGroup, ...]
    peers: tuple[ChosenGroup, ...]


def internal_policy(facts: Facts, policy: NamespacedPolicy) -> Iterator[Row]:
    """Yield the policy and the groups that it names, which are shared by all that name the same."""
    return in_portions(_internal_policy(facts, policy))


def _internal_policy(facts: Facts, policy: NamespacedPolicy) -> Iterator[Row | None]:
    spec, splits = policy.spec, _splits(policy.spec)
    own_targets = () if splits else targets(facts, policy.namespace, spec.applied_to)
    for own_target in own_targets:
        yield from own_target.rows
    # what is split by Namespace says of each rule by itself whom it is for
    shared = spec.applied_to if splits else ()
    drafts: list[Draft] = []
    for direction, rules in (("In", spec.ingress), ("Out", spec.egress)):
        for number, rule in enumerate(rules):
            drafts += yield from _drafts(facts, policy.namespace, rule, (direction, number), shared)
    for draft in drafts:
        if names_ports(draft.rule.services):
            yield from port_rows(
                (draft.targets or own_targets) if draft.rule.direction == "In" else draft.peers
            )
    aims = [*own_targets, *(target for draft in drafts for target in draft.targets)]
    peers = [peer for draft in drafts for peer in draft.peers]
    home = facts.get(Namespace, policy.namespace) if policy.namespace else None
    audit = policy.audit.within(namespace_audits=home is not None and home.audits_policies)
    source = cp.NetworkPolicyReference(
        type=NAMESPACED if policy.namespace else CLUSTER,
        namespace=policy.namespace,
        name=policy.name,
        uid=policy.uid,
    )
    internal = cp.NetworkPolicy(
        metadata=ObjectMetadata(
            name=policy.uid,
            uid=policy.uid,
            generation=policy.generation,
            creation_timestamp=policy.created,
            annotations=published_annotations(
                flush_on_deny=policy.flush_on_deny, confirm_seconds=policy.confirm_seconds, audit=audit
            ),
        ),
        rules=tuple(draft.rule for draft in drafts),
        applied_to_groups=_names(own_targets),
        priority=as_number(spec.priority),
        tier_priority=tier_priority(facts, spec.tier),
        source_ref=source,
    )
    unheld: list[str] = []
    for part in unheld_parts(facts, policy.namespace, spec):
        if part is None:
            yield None
        elif len(unheld) <= MAX_PARTS:
            unheld.append(part)
    audited = audited_text(spec, audit)
    yield InternalPolicy(internal, source, _names(aims), _names(peers), tuple(unheld), audited, audit)


def audited_text(spec: ClusterNetworkPolicySpec | NetworkPolicySpec, audit: AuditMode) -> str:
    """Return the sentence of a condition about an audited policy; empty if all of it is enforced."""
    rules = [rule.name for rule in (*spec.ingress, *spec.egress)]
    return audited_sentence(audit, rules, unjudged_parts(spec, audit))


def audited_sentence(audit: AuditMode, rules: Iterable[str], unjudged: Iterable[str]) -> str:
    """Return the sentence for a policy with audited rules of these names, and parts that no copy is judged by."""
    names = [name for name in rules if audit.has(name)]
    if not audit.whole and not names:
        return ""
    listed = ", ".join(one_line(name[:MAX_NAME]) for name in names[:MAX_PARTS])
    more = f" and {len(names) - MAX_PARTS} more" if len(names) > MAX_PARTS else ""
    what = "all of its rules are" if audit.whole else f"{listed}{more} {'are' if len(names) > 1 else 'is'}"
    lacks = islice(unjudged, MAX_PARTS)
    return "; ".join([f"{what} audited: nothing is dropped by that", *lacks])


def _names(chosen: list[ChosenGroup] | tuple[ChosenGroup, ...]) -> tuple[str, ...]:
    return tuple(sorted({group.name for group in chosen}))


def tier_priority(facts: Facts, name: str) -> int:
    """Return the priority of the Tier, by any of the names that policies may use; a default Tier counts before it has been
    created.
    """
    known = name.lower() if name in STATIC else name or DEFAULT
    row = facts.get(TierRow, known)
    return row.priority if row else PRIORITIES.get(known, PRIORITIES[DEFAULT])


def _drafts(
    facts: Facts, namespace: str, rule: Rule, place: tuple[str, int], shared: tuple[AppliedTo, ...]
) -> Generator[Row | None, None, list[Draft]]:
    """Make one rule, or, for peers in relation to Namespaces, one for each set of these; yields the rows of their groups."""
    everywhere = [peer for peer in (*rule.from_, *rule.to) if peer.namespaces is None]
    relative = [peer for peer in (*rule.from_, *rule.to) if peer.namespaces is not None]
    applied = rule.applied_to or shared
    drafts: list[Draft] = []
    if everywhere or not relative:
        aims = targets(facts, namespace, applied)
        for aim in aims:
            yield from aim.rows
        mapped = yield from rule_peers(facts, namespace, rule, everywhere, place[0])
        drafts.append(Draft(_rule(rule, place, mapped.peer, aims), aims, mapped.groups))
    for aims, peers in related(facts, applied, relative) if relative else ():
        for chosen in (*aims, *peers):
            yield from chosen.rows
        related_peer = cp.NetworkPolicyPeer(
            address_groups=tuple(dict.fromkeys(group.name for group in peers))
        )
        drafts.append(Draft(_rule(rule, place, related_peer, aims), aims, peers))
    return drafts


def _splits(spec: ClusterNetworkPolicySpec | NetworkPolicySpec) -> bool:
    return any(peer.namespaces for rule in (*spec.ingress, *spec.egress) for peer in (*rule.from_, *rule.to))


def _rule(
    rule: Rule, place: tuple[str, int], peer: cp.NetworkPolicyPeer, aims: tuple[ChosenGroup, ...]
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
        applied_to_groups=tuple(dict.fromkeys(group.name for group in aims)),
        name=rule.name,
        l7_protocols=applications(rule),
        log_label=rule.log_label,
    )


def _row(kind: type[NamespacedPolicy]) -> Callable[[Any], NamespacedPolicy]:
    def row(stored: Any) -> NamespacedPolicy:
        meta = stored.metadata
        born, cut = meta.creation_timestamp, flush_on_deny(meta.annotations)
        within = unconfirmed_seconds(meta.annotations, meta.generation)
        audit = audit_mode(meta.annotations)
        return kind(
            meta.namespace, meta.name, meta.uid, meta.generation, stored.spec, born, cut, within, audit
        )

    return row


cluster_policy_row, policy_row = _row(ClusterPolicy), _row(NamespacedPolicy)
WATCHED = (
    Watched(
        f"{CRD}/clusternetworkpolicies", ClusterNetworkPolicy, ClusterPolicy, cluster_policy_row, guards="all"
    ),
    Watched(f"{CRD}/networkpolicies", NetworkPolicy, NamespacedPolicy, policy_row, guards="its own"),
)
