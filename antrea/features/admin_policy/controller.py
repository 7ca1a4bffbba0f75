"""Admin policies in the controller: what is sent to agents of them, and how far Nodes are.

parity: pkg/controller/networkpolicy/{adminnetworkpolicy,clusternetworkpolicy}.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from antrea.apis import controlplane as cp
from antrea.apis.crd.part import LabelSelector
from antrea.apis.meta import ObjectMetadata, as_number
from antrea.apis.network_policy_api import v1alpha1, v1alpha2
from antrea.apis.network_policy_api.part import GROUP, AdminPolicySpec, EgressPeer, Subject
from antrea.apis.network_policy_api.place import PLACES
from antrea.engine import Unit
from antrea.facts.external_ip import FencedLeadership
from antrea.facts.fact import Fact
from antrea.facts.group import GroupSelector, PublishedGroup
from antrea.features.admin_policy.closed import NOBODY, group_doubts, read_rule
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.event import RecordEvent
from antrea.features.grouping.member import ADDRESS, APPLIED
from antrea.features.grouping.publication import POLICIES
from antrea.features.grouping.selector import group_selector
from antrea.features.network_policy.audit_mode import (
    ENFORCED,
    AuditMode,
    audit_mode,
    enforcement_doubt,
    unknown_text,
)
from antrea.features.network_policy.controller.antrea_internal_policy import InternalPolicy, audited_sentence
from antrea.features.network_policy.controller.antrea_peer import by_selector
from antrea.features.network_policy.controller.group import GroupUse
from antrea.features.network_policy.controller.named_port import names_ports, port_rows
from antrea.features.network_policy.controller.realization import MAX_PARTS
from antrea.features.network_policy.internal_policy import (
    PORTION,
    flush_on_deny,
    in_portions,
    published_annotations,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from antrea.apis.network_policy_api.part import Rule
    from antrea.engine import Facts
    from antrea.features.network_policy.controller.antrea_peer import ChosenGroup, Row

DIRECTIONS = {"In": "ingress", "Out": "egress"}


class AdminPolicy(Fact, frozen=True):
    """An AdminNetworkPolicy; its feed writes it."""

    source_type: ClassVar[str] = "AdminNetworkPolicy"
    tiers: ClassVar[dict[str, int]] = {"Admin": 251}
    """Priorities of its tiers."""
    name: str
    uid: str
    generation: int
    spec: AdminPolicySpec
    created: str = ""
    """Creation in RFC 3339, UTC; among otherwise equal policies, the older has precedence."""
    flush_on_deny: bool = False
    """Whether established connections are cut when it forbids them."""
    audit: AuditMode = ENFORCED
    doubt: str = ""
    """Why the value of its annotation on auditing has no effect."""

    @property
    def key(self) -> str:
        return self.name


class BaselinePolicy(AdminPolicy, frozen=True):
    """BaselineAdminNetworkPolicy: it has another feed, so another kind."""

    source_type: ClassVar[str] = "BaselineAdminNetworkPolicy"
    tiers: ClassVar[dict[str, int]] = {"Baseline": 254}


class TieredPolicy(AdminPolicy, frozen=True):
    """A ClusterNetworkPolicy of policy.networking.k8s.io."""

    source_type: ClassVar[str] = "K8sClusterNetworkPolicy"
    tiers: ClassVar[dict[str, int]] = {"Admin": 220, "Baseline": 254}


def internal_admin_policy(_: Facts, policy: AdminPolicy) -> Iterator[Row]:
    """Yield the policy and the groups that it names, which are shared by all policies that name the same."""
    return in_portions(_internal_policy(policy))


def unknown_admin_enforcement(facts: Facts, policy: AdminPolicy) -> Iterator[RecordEvent]:
    """The Event on an annotation without a meaning."""
    if policy.doubt and facts.get(FencedLeadership) is not None:
        yield _unknown_enforcement(policy)


def _unknown_enforcement(policy: AdminPolicy) -> RecordEvent:
    """Make an Event on an annotation that is neither audit nor enforce: no webhook of Antrea checks these kinds."""
    place, text = PLACES[policy.source_type], unknown_text(policy.doubt)
    return RecordEvent(
        f"{policy.uid} enforcement", text, f"{GROUP}/{place.version}", place.kind, policy.name, policy.uid,
        "EnforcementUnknown", text, warning=True,
    )  # fmt: skip


def _internal_policy(policy: AdminPolicy) -> Iterator[Row | None]:
    tier, priority = policy.spec.place
    subject = policy.spec.subject
    doubts: list[str] = []
    if tier not in policy.tiers:
        doubts.append(f"spec.tier {tier[:20]!r} is not known: the policy is in the tier Admin")
    aims = [] if (aim := _chosen(APPLIED, subject)) is None else [aim]
    if not aims:
        doubts.append("spec.subject has no field that is known here: the policy is for nobody")
    doubts += group_doubts("spec.subject", subject)
    for chosen in aims:
        yield from chosen.rows
    rules: list[cp.NetworkPolicyRule] = []
    peers: dict[str, None] = {}
    for direction, rules_of_direction in policy.spec.rules:
        for number, rule in enumerate(rules_of_direction):
            path = f"spec.{DIRECTIONS[direction]}[{number}]"
            rules.append((yield from _rule(path, (direction, number), rule, doubts, peers)))
    if any(sent_rule.direction == "In" and names_ports(sent_rule.services) for sent_rule in rules):
        yield from port_rows(aims)
    source = cp.NetworkPolicyReference(type=policy.source_type, name=policy.name, uid=policy.uid)
    targets = tuple(aim.name for aim in aims)
    sent_policy = cp.NetworkPolicy(
        metadata=ObjectMetadata(
            name=policy.uid,
            uid=policy.uid,
            generation=policy.generation,
            creation_timestamp=policy.created,
            annotations=published_annotations(flush_on_deny=policy.flush_on_deny, audit=policy.audit),
        ),
        rules=tuple(rules),
        applied_to_groups=targets,
        priority=as_number(priority),
        tier_priority=policy.tiers.get(tier, policy.tiers.get("Admin")),
        source_ref=source,
    )
    audited = _audited_text(policy)
    unheld = tuple(doubts[: MAX_PARTS + 1])
    yield InternalPolicy(sent_policy, source, targets, tuple(sorted(peers)), unheld, audited, policy.audit)


def _audited_text(policy: AdminPolicy) -> str:
    """Return the sentence of a condition; empty if all of it is enforced."""
    rules = [rule.name for _, direction_rules in policy.spec.rules for rule in direction_rules]
    return audited_sentence(policy.audit, rules, ())


def _rule(
    path: str, place: tuple[str, int], rule: Rule, doubts: list[str], peers: dict[str, None]
) -> Generator[Row | None, None, cp.NetworkPolicyRule]:
    """Make the rule that is sent to agents; yields the rows of its groups, and None where it may pause."""
    direction, number = place
    read = read_rule(path, rule)
    doubts += read.doubts
    groups: dict[str, None] = {}
    named = names_ports(read.services)
    for count, peer in enumerate(read.peers):
        if len(doubts) <= MAX_PARTS:
            doubts += group_doubts(f"{path}.{'from' if direction == 'In' else 'to'}[{count}]", peer)
        if (chosen := _chosen(ADDRESS, peer)) is not None and chosen.name not in groups:
            groups[chosen.name] = None
            yield from chosen.rows
            if named and direction == "Out":
                yield from port_rows((chosen,))
        if count % PORTION == PORTION - 1:
            yield None
    if read.denies_all and named:
        # networks have no ports by name: Pods have
        everybody = by_selector(ADDRESS, group_selector(namespaces=LabelSelector()))
        groups[everybody.name] = None
        yield from everybody.rows
        if direction == "Out":
            yield from port_rows((everybody,))
    peers |= groups
    sent_peer = cp.NetworkPolicyPeer(
        address_groups=tuple(groups), ip_blocks=read.rest.ip_blocks, fqdns=read.rest.fqdns
    )
    return cp.NetworkPolicyRule(
        direction=direction,
        from_=sent_peer if direction == "In" else NOBODY,
        to=sent_peer if direction == "Out" else NOBODY,
        services=read.services,
        priority=number,
        action=read.action,
        enable_logging=False,
        name=rule.name,
    )


def _chosen(resource: str, peer: Subject) -> ChosenGroup | None:
    """Return the group of a subject or peer; None if it is not one."""
    if peer.pods is not None:
        return by_selector(resource, group_selector("", peer.pods.pod_selector, peer.pods.namespace_selector))
    if peer.namespaces is not None:
        return by_selector(resource, group_selector(namespaces=peer.namespaces))
    if isinstance(peer, EgressPeer) and peer.nodes is not None:
        return by_selector(resource, group_selector(nodes=peer.nodes))
    return None


def admin_row(kind: type[AdminPolicy]) -> Callable[[Any], AdminPolicy]:
    """Make the function from objects to rows of one kind."""

    def row(stored: Any) -> AdminPolicy:
        meta = stored.metadata
        cut, audit = flush_on_deny(meta.annotations), audit_mode(meta.annotations)
        doubt = enforcement_doubt(meta.annotations)
        return kind(
            meta.name, meta.uid, meta.generation, stored.spec, meta.creation_timestamp, cut, audit, doubt
        )

    return row


_MADE = (InternalPolicy, PublishedGroup, GroupSelector, GroupUse)


def _feature(gate: str, *kinds: tuple[Any, type[AdminPolicy]]) -> ControllerFeature:
    """Make the feature of a gate; the feature AntreaPolicy enforces and reports, without which this gate is refused."""
    return ControllerFeature(
        name=gate,
        watched=tuple(
            Watched(
                PLACES[fact.source_type].collection,
                struct,
                fact,
                admin_row(fact),
                guards="all",
                optional=True,
            )
            for struct, fact in kinds
        ),
        units=(
            *(Unit(fact, internal_admin_policy, yields=_MADE, measured_as=(POLICIES,)) for _, fact in kinds),
            *(Unit(fact, unknown_admin_enforcement) for _, fact in kinds),
        ),
        publishes=(ADDRESS, APPLIED, POLICIES),
        gate=gate,
    )


FEATURES = (
    _feature(
        "AdminNetworkPolicy",
        (v1alpha1.AdminNetworkPolicy, AdminPolicy),
        (v1alpha1.BaselineAdminNetworkPolicy, BaselinePolicy),
    ),
    _feature("ClusterNetworkPolicy", (v1alpha2.ClusterNetworkPolicy, TieredPolicy)),
)
