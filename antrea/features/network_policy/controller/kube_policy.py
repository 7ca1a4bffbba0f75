"""NetworkPolicies of Kubernetes in the controller: the rules that agents need, and the groups that these name.

parity: pkg/controller/networkpolicy/networkpolicy_controller.go processNetworkPolicy
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis import networking
from antrea.apis.crd.part import LabelSelector
from antrea.apis.meta import ObjectMetadata
from antrea.engine import Unit
from antrea.facts.cluster import Namespace
from antrea.facts.external_ip import FencedLeadership
from antrea.facts.fact import Fact
from antrea.facts.group import GroupNodes, GroupSelector, PublishedGroup, Requirement
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.event import RecordEvent
from antrea.features.grouping.publication import POLICIES, GroupSpan, PublishedPolicy
from antrea.features.grouping.selector import group_selector, requirements, selector_of
from antrea.features.network_policy.audit_mode import (
    AUDITED,
    ENFORCED,
    AuditMode,
    audit_mode,
    enforcement_doubt,
    unknown_text,
)
from antrea.features.network_policy.controller.named_port import (
    port_parts,
    unknown_port_event,
    unknown_ports,
)
from antrea.features.network_policy.controller.peer import (
    ALL,
    group,
    has_named_port,
    peer,
    read_block,
    services,
    unreadable,
    uuid_of,
)
from antrea.features.network_policy.internal_policy import (
    NOTHING,
    PORTION,
    InternalPolicyFields,
    completed,
    flush_on_deny,
    in_portions,
    published_annotations,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from antrea.engine import Facts

ADDRESS, APPLIED = "addressgroups", "appliedtogroups"
KIND = "K8sNetworkPolicy"
PRIORITY = -1
"""Priority of all rules, since rules of one policy have no order."""
NOBODY = cp.NetworkPolicyPeer()
SMALL = 16 << 10
"""Maximum size in bytes of a spec whose decoded form is cached; large ones are few, and decode to even more."""
FIELDS = {"In": "from", "Out": "to"}


class KubePolicy(Fact, frozen=True):
    """NetworkPolicy of networking.k8s.io; its feed writes it."""

    namespace: str
    name: str
    uid: str
    generation: int
    encoded: bytes
    """Encoded spec; the same object in all policies with the same text."""
    flush_on_deny: bool = False
    """Whether established connections are cut when it forbids them."""
    audit: AuditMode = ENFORCED
    doubt: str = ""
    """Why its annotation on auditing has no effect."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def spec(self) -> networking.NetworkPolicySpec:
        """Spec as it was written."""
        return (_kept_spec if len(self.encoded) <= SMALL else _decoded)(self.encoded)


@lru_cache(maxsize=256)
def _interned(encoded: bytes) -> bytes:
    """Return the first of equal texts."""
    return encoded


class RuleSpec(msgspec.Struct, frozen=True):
    """Rule of either direction."""

    direction: str
    peers: tuple[networking.NetworkPolicyPeer, ...]
    ports: tuple[networking.NetworkPolicyPort, ...]

    @property
    def needs_pods(self) -> bool:
        """Whether named ports need each Pod's own numbers, for any Pod."""
        return not self.peers and self.direction == "Out" and has_named_port(self.ports)


class DraftKubeRule:
    """Rule, and the groups of its peers."""

    def __init__(self, side: RuleSpec, selectors: list[GroupSelector]) -> None:
        self.side = side
        self.selectors = selectors
        self.groups = [group(ADDRESS, selector) for selector in selectors]


Conditions = tuple[Requirement, ...] | None


class PolicyForm(msgspec.Struct, frozen=True):
    """Content of a policy without its name and Namespace, which policies with the same text share."""

    applied: Conditions
    rules: tuple[FormRule, ...]
    isolated: tuple[str, ...]
    """Directions in which nothing is allowed."""
    ignored: tuple[str, ...]
    """Paths of blocks that cannot be read, and why."""


class FormRule(msgspec.Struct, frozen=True):
    """Rule of either direction."""

    direction: str
    peers: tuple[tuple[Conditions, Conditions], ...]
    """Conditions on Namespaces (None for the policy's own) and on Pods."""
    peer: cp.NetworkPolicyPeer
    """Peer without groups."""
    services: tuple[cp.Service, ...]


def form_steps(spec: networking.NetworkPolicySpec) -> Generator[None, None, PolicyForm]:
    """Make the form of a spec, with pauses."""
    rules, ignored = [], list[str]()
    numbers = {"In": 0, "Out": 0}
    for side in sides(spec):
        field = f"spec.{'ingress' if side.direction == 'In' else 'egress'}[{numbers[side.direction]}]"
        numbers[side.direction] += 1
        rules.append((yield from _form_rule(side, f"{field}.{FIELDS[side.direction]}", ignored)))
    isolated = tuple(direction for direction in directions(spec) if not numbers[direction])
    return PolicyForm(requirements(spec.pod_selector), tuple(rules), isolated, tuple(ignored))


def _form_rule(side: RuleSpec, path: str, ignored: list[str]) -> Generator[None, None, FormRule]:
    peers: list[tuple[Conditions, Conditions]] = [((), None)] if side.needs_pods else []
    read = []
    for index, entry in enumerate(side.peers):
        if not entry.is_known:
            ignored.append(f"{path}[{index}] has no field that is known here")
        elif entry.ip_block is None:
            spaces, pods = entry.namespace_selector, entry.pod_selector
            peers.append(
                (
                    None if spaces is None else requirements(spaces),
                    None if pods is None else requirements(pods),
                )
            )
        else:
            try:
                read.append((yield from read_block(entry.ip_block)))
            except ValueError:
                ignored.append(f"{path}[{index}].ipBlock.{unreadable(entry.ip_block)}")
        if (index + 1) % PORTION == 0:
            yield
    blocks = cp.NetworkPolicyPeer(ip_blocks=tuple(read)) if side.peers else ALL
    return FormRule(side.direction, tuple(peers), blocks, services(side.ports))


@lru_cache(maxsize=256)
def _form_of(encoded: bytes) -> PolicyForm:
    """Make the form of a small spec; consecutive policies often have the same."""
    return completed(form_steps(_decoded(encoded)))


def _decoded(encoded: bytes) -> networking.NetworkPolicySpec:
    return msgspec.msgpack.decode(encoded, type=networking.NetworkPolicySpec)


_kept_spec = lru_cache(maxsize=256)(_decoded)
"""Decoder of small specs with a cache."""


class InternalKubePolicy(InternalPolicyFields, frozen=True):
    """NetworkPolicy as agents need it, and what decides to which Nodes it goes; derived."""

    target: str
    """Name of the `PublishedGroup` that it is for."""
    peers: tuple[str, ...]
    """Names of the groups of its peers."""


def policy_row(policy: networking.NetworkPolicy) -> KubePolicy:
    """Make the row of a policy."""
    meta = policy.metadata
    return KubePolicy(
        sys.intern(meta.namespace),
        meta.name,
        meta.uid,
        meta.generation,
        _interned(msgspec.msgpack.encode(policy.spec)),
        flush_on_deny=flush_on_deny(meta.annotations),
        audit=audit_mode(meta.annotations),
        doubt=enforcement_doubt(meta.annotations),
    )


def directions(spec: networking.NetworkPolicySpec) -> tuple[str, ...]:
    """Return the directions in which the policy isolates: those of policyTypes alone, whatever rules it has.

    Without policyTypes these are ingress, and egress if there are egress rules, as kube-apiserver completes it.
    Upstream isolates in a direction of which there are rules, too.
    """
    types = spec.policy_types or (("Ingress", "Egress") if spec.egress else ("Ingress",))
    return tuple(direction for kind, direction in (("Ingress", "In"), ("Egress", "Out")) if kind in types)


def sides(spec: networking.NetworkPolicySpec) -> list[RuleSpec]:
    """Return the rules that have an effect, those of ingress first."""
    affected = directions(spec)
    ingress = [RuleSpec("In", rule.from_, rule.ports) for rule in spec.ingress if "In" in affected]
    egress = [RuleSpec("Out", rule.to, rule.ports) for rule in spec.egress if "Out" in affected]
    return ingress + egress


def selectors(policy: KubePolicy, side: RuleSpec) -> list[GroupSelector]:
    """Return the selectors of the peers of one rule, in their order."""
    if side.needs_pods:
        everybody = group_selector(namespaces=LabelSelector())
        return [everybody] if everybody else []
    selectors_of_peers = (
        group_selector(policy.namespace, peer.pod_selector, peer.namespace_selector)
        for peer in side.peers
        if peer.is_known and peer.ip_block is None
    )
    return [selector for selector in selectors_of_peers if selector is not None]


def applied(policy: KubePolicy) -> GroupSelector:
    """Return the selector of the Pods that the policy is for."""
    selector = group_selector(policy.namespace, policy.spec.pod_selector)
    if selector is None:
        raise ValueError("a NetworkPolicy has a Namespace")
    return selector


def internal_kube_policy(
    facts: Facts, policy: KubePolicy
) -> Iterator[InternalKubePolicy | GroupSelector | RecordEvent]:
    """Yield the policy, and the groups that it names, which are shared by all policies that select the same."""
    return in_portions(_internal_policy(facts, policy))


def _internal_policy(
    facts: Facts, policy: KubePolicy
) -> Iterator[InternalKubePolicy | GroupSelector | RecordEvent | None]:
    space = policy.namespace
    home = facts.get(Namespace, space)
    logging = home is not None and home.logs_policies
    if len(policy.encoded) <= SMALL:
        form = _form_of(policy.encoded)
    else:
        spec = _decoded(policy.encoded)
        selector, target = _target(space, requirements(spec.pod_selector))
        yield selector.with_parts((PublishedGroup(APPLIED, target, target),))
        form = yield from form_steps(spec)
    selector, target = _target(space, form.applied)
    used: dict[str, list[Any]] = {target: [selector, PublishedGroup(APPLIED, target, target)]}
    peers: dict[str, None] = {}
    sent = []
    for rule in form.rules:
        names: dict[str, None] = {}
        for spaces, pods in rule.peers:
            selector = selector_of(space if spaces is None else "", spaces, pods)
            name = uuid_of(selector.name)
            names[name] = None
            if name not in peers:
                peers[name] = None
                if len(peers) % PORTION == 0:
                    yield None
                used.setdefault(name, [selector]).append(PublishedGroup(ADDRESS, name, name))
        peer = rule.peer
        if names:
            peer = cp.NetworkPolicyPeer(address_groups=tuple(names), ip_blocks=peer.ip_blocks)
        sent.append(_rule(rule.direction, peer, rule.services, "Allow", logging))
        for name in (target,) if rule.direction == "In" else names:
            used[name] += port_parts(rule.services, name)
    sent += [_rule(direction, NOBODY, (), "", logging) for direction in form.isolated]
    for selector, *groups in used.values():
        yield selector.with_parts(tuple(groups) if len(groups) == 1 else tuple(sorted(set(groups))))
    internal = cp.NetworkPolicy(
        metadata=_metadata(policy, whole=_audits(policy, home)),
        rules=tuple(sent),
        applied_to_groups=(target,),
        source_ref=reference(policy),
    )
    yield InternalKubePolicy(internal, target, tuple(peers))
    if facts.get(FencedLeadership) is not None:
        yield from _events(policy, form.ignored)


def is_audited(facts: Facts, policy: KubePolicy) -> bool:
    """Whether it drops nothing, by its own annotation or by that of its Namespace."""
    return _audits(policy, facts.get(Namespace, policy.namespace))


def _audits(policy: KubePolicy, home: Namespace | None) -> bool:
    return policy.audit.within(namespace_audits=home is not None and home.audits_policies).whole


def _metadata(policy: KubePolicy, *, whole: bool) -> ObjectMetadata:
    annotations = published_annotations(
        flush_on_deny=policy.flush_on_deny, audit=AUDITED if whole else ENFORCED
    )
    uid = policy.uid
    return ObjectMetadata(
        name=uid, uid=uid, generation=policy.generation, labels=NOTHING, annotations=annotations
    )


def _target(space: str, applied: Conditions) -> tuple[GroupSelector, str]:
    """Return the selector of the target, and the name of its group."""
    selector = selector_of(space, None, applied)
    return selector, uuid_of(selector.name)


def _events(policy: KubePolicy, ignored: tuple[str, ...]) -> Iterator[RecordEvent]:
    """Yield Events on what differs from the author's intent: a NetworkPolicy of Kubernetes has no status."""
    if ignored:
        yield ignored_peers(policy, ignored)
    if policy.doubt:
        yield unknown_enforcement(policy)


def ignored_peers(policy: KubePolicy, paths: tuple[str, ...]) -> RecordEvent:
    """Make an Event on blocks that cannot be read: a NetworkPolicy of Kubernetes has no status."""
    more = f" (and {len(paths) - 1} more)" if paths[1:] else ""
    message = f"{paths[0]}{more}: it allows nobody; the other peers and rules are enforced"
    return RecordEvent(
        policy.uid, message, "networking.k8s.io/v1", "NetworkPolicy", policy.name, policy.uid,
        "PeerIgnored", message, warning=True, namespace=policy.namespace,
    )  # fmt: skip


def unknown_enforcement(policy: KubePolicy) -> RecordEvent:
    """Make an Event on an annotation that is neither audit nor enforce."""
    message = unknown_text(policy.doubt)
    return RecordEvent(
        f"{policy.uid} enforcement", message, "networking.k8s.io/v1", "NetworkPolicy", policy.name, policy.uid,
        "EnforcementUnknown", message, warning=True, namespace=policy.namespace,
    )  # fmt: skip


def _rule(
    direction: str, peer: cp.NetworkPolicyPeer, ports: tuple[cp.Service, ...], action: str, logging: bool
) -> cp.NetworkPolicyRule:
    if not action:
        return cp.NetworkPolicyRule(direction=direction, from_=NOBODY, to=NOBODY, enable_logging=logging)
    return cp.NetworkPolicyRule(
        direction=direction,
        from_=peer if direction == "In" else NOBODY,
        to=peer if direction == "Out" else NOBODY,
        services=ports,
        priority=PRIORITY,
        action=action,
        enable_logging=logging,
    )


def rules(policy: KubePolicy, *, logging: bool) -> Iterator[cp.NetworkPolicyRule]:
    """Yield what is allowed; a direction that is isolated and allows nothing is one rule without a peer."""
    drafts = [DraftKubeRule(side, selectors(policy, side)) for side in sides(policy.spec)]
    return _rules(policy, drafts, logging=logging)


def _rules(
    policy: KubePolicy, drafts: list[DraftKubeRule], *, logging: bool
) -> Iterator[cp.NetworkPolicyRule]:
    for draft in drafts:
        side, sent = draft.side, ALL
        if side.peers:
            blocks = [peer.ip_block for peer in side.peers if peer.ip_block is not None]
            sent = peer(draft.groups, blocks)
        elif side.needs_pods:
            sent = msgspec.structs.replace(ALL, address_groups=tuple(group.name for group in draft.groups))
        yield cp.NetworkPolicyRule(
            direction=side.direction,
            from_=sent if side.direction == "In" else NOBODY,
            to=sent if side.direction == "Out" else NOBODY,
            services=services(side.ports),
            priority=PRIORITY,
            action="Allow",
            enable_logging=logging,
        )
    for direction in directions(policy.spec):
        if not any(draft.side.direction == direction for draft in drafts):
            yield cp.NetworkPolicyRule(direction=direction, from_=NOBODY, to=NOBODY, enable_logging=logging)


def reference(policy: KubePolicy) -> cp.NetworkPolicyReference:
    """Return the reference by which the policy is sent and shown."""
    return cp.NetworkPolicyReference(type=KIND, namespace=policy.namespace, name=policy.name, uid=policy.uid)


def kube_policy_publication(
    facts: Facts, policy: InternalKubePolicy
) -> Iterator[PublishedPolicy | GroupSpan]:
    """Yield the policy for all Nodes with a Pod that it is for, and those Nodes for the groups of its peers."""
    span = facts.get(GroupNodes, policy.target)
    nodes = span.parts if span else ()
    yield PublishedPolicy(policy.policy, nodes)
    for name in policy.peers if nodes else ():
        yield GroupSpan(ADDRESS, name, nodes)


def kube_port_events(facts: Facts, policy: InternalKubePolicy) -> Iterator[RecordEvent]:
    """Yield the Event on port names that no concerned Pod declares: the kind has no status."""
    source = policy.policy.source_ref
    if source is not None:
        yield from unknown_port_event(facts, source, unknown_ports(facts, policy.policy))


FEATURE = ControllerFeature(
    name="NetworkPolicy",
    watched=(
        Watched(
            "/apis/networking.k8s.io/v1/networkpolicies",
            networking.NetworkPolicy,
            KubePolicy,
            policy_row,
            guards="its own",
        ),
    ),
    units=(
        Unit(
            KubePolicy,
            internal_kube_policy,
            yields=(GroupSelector, InternalKubePolicy),
            measured_as=(POLICIES,),
        ),
        Unit(InternalKubePolicy, kube_policy_publication, measured_as=(POLICIES,)),
        Unit(InternalKubePolicy, kube_port_events),
    ),
    publishes=(ADDRESS, APPLIED, POLICIES),
)
