"""NetworkPolicies of Kubernetes in the controller: the rules that agents need, and the groups these name.

parity: pkg/controller/networkpolicy/networkpolicy_controller.go processNetworkPolicy
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis import controlplane as cp
from antrea.apis import networking
from antrea.apis.crd.part import LabelSelector
from antrea.apis.meta import ObjectMetadata
from antrea.engine import Unit
from antrea.facts.cluster import Namespace
from antrea.facts.fact import Fact
from antrea.facts.group import Group, GroupNodes, GroupSelector
from antrea.features.admission import Watched
from antrea.features.controller import ControllerFeature
from antrea.features.grouping.publication import GroupHead, GroupSpan, PublishedPolicy, known
from antrea.features.grouping.selector import group_selector
from antrea.features.network_policy.internal import Internal, cuts, told_annotations
from antrea.features.network_policy.peer import ALL, group, has_named_port, peer, services

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts

ADDRESS, APPLIED = "addressgroups", "appliedtogroups"
KIND = "K8sNetworkPolicy"
PRIORITY = -1
"""Rules of one policy have no order."""
NOBODY = cp.NetworkPolicyPeer()


class KubePolicy(Fact, frozen=True):
    """A NetworkPolicy of networking.k8s.io; its feed writes it."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: networking.NetworkPolicySpec
    cuts: bool = False
    """What it comes to forbid is cut."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Side(msgspec.Struct, frozen=True):
    """One rule of either direction."""

    direction: str
    peers: tuple[networking.NetworkPolicyPeer, ...]
    ports: tuple[networking.NetworkPolicyPort, ...]

    @property
    def needs_pods(self) -> bool:
        """Named ports of whatever Pod it may be: each Pod's own numbers are needed."""
        return not self.peers and self.direction == "Out" and has_named_port(self.ports)


class Draft:
    """One rule, and the groups of its peers."""

    def __init__(self, side: Side, selectors: list[GroupSelector]) -> None:
        self.side = side
        self.selectors = selectors
        self.groups = [group(ADDRESS, one) for one in selectors]


class InternalKubePolicy(Internal, frozen=True):
    """A NetworkPolicy as agents need it, and what decides to which Nodes it goes; derived."""

    target: str
    """Name of the `Group` that it is for."""
    peers: tuple[str, ...]
    """Names of the groups of its peers."""


def policy_row(found: networking.NetworkPolicy) -> KubePolicy:
    """All of it counts."""
    meta = found.metadata
    return KubePolicy(
        meta.namespace, meta.name, meta.uid, meta.generation, found.spec, cuts=cuts(meta.annotations)
    )


def sides(spec: networking.NetworkPolicySpec) -> list[Side]:
    """All rules, those of ingress first."""
    ingress = [Side("In", rule.from_, rule.ports) for rule in spec.ingress]
    return ingress + [Side("Out", rule.to, rule.ports) for rule in spec.egress]


def selectors(policy: KubePolicy, side: Side) -> list[GroupSelector]:
    """Of the peers of one rule, in their order."""
    if side.needs_pods:
        everybody = group_selector(namespaces=LabelSelector())
        return [everybody] if everybody else []
    found = (
        group_selector(policy.namespace, one.pod_selector, one.namespace_selector)
        for one in side.peers
        if one.ip_block is None
    )
    return [one for one in found if one is not None]


def applied(policy: KubePolicy) -> GroupSelector:
    """The Pods that the policy is for."""
    found = group_selector(policy.namespace, policy.spec.pod_selector)
    if found is None:
        raise ValueError("a NetworkPolicy has a Namespace")
    return found


def internal_policy(
    facts: Facts, policy: KubePolicy
) -> Iterator[InternalKubePolicy | Group | GroupHead | GroupSelector]:
    """The policy, and the groups that it names, which it shares with all policies that select the same."""
    home = facts.get(Namespace, policy.namespace)
    found = applied(policy)
    target = group(APPLIED, found)
    yield found
    yield from known(target)
    drafts = [Draft(side, selectors(policy, side)) for side in sides(policy.spec)]
    for one in dict.fromkeys(one for draft in drafts for one in draft.selectors):
        if one != found:
            yield one
    chosen = {one.key: one for draft in drafts for one in draft.groups}
    for other in chosen.values():
        yield from known(other)
    told = cp.NetworkPolicy(
        metadata=ObjectMetadata(
            name=policy.uid,
            uid=policy.uid,
            generation=policy.generation,
            annotations=told_annotations(cuts=policy.cuts),
        ),
        rules=tuple(_rules(policy, drafts, logging=home is not None and home.logs_policies)),
        applied_to_groups=(target.name,),
        source_ref=reference(policy),
    )
    yield InternalKubePolicy(told, target.name, tuple(one.name for one in chosen.values()))


def rules(policy: KubePolicy, *, logging: bool) -> Iterator[cp.NetworkPolicyRule]:
    """What is allowed; a direction that is isolated and allows nothing is one rule without a peer."""
    drafts = [Draft(side, selectors(policy, side)) for side in sides(policy.spec)]
    return _rules(policy, drafts, logging=logging)


def _rules(policy: KubePolicy, drafts: list[Draft], *, logging: bool) -> Iterator[cp.NetworkPolicyRule]:
    for draft in drafts:
        side, told = draft.side, ALL
        if side.peers:
            blocks = [one.ip_block for one in side.peers if one.ip_block is not None]
            told = peer(draft.groups, blocks)
        elif side.needs_pods:
            told = msgspec.structs.replace(ALL, address_groups=tuple(one.name for one in draft.groups))
        yield cp.NetworkPolicyRule(
            direction=side.direction,
            from_=told if side.direction == "In" else NOBODY,
            to=told if side.direction == "Out" else NOBODY,
            services=services(side.ports),
            priority=PRIORITY,
            action="Allow",
            enable_logging=logging,
        )
    for kind, direction in (("Ingress", "In"), ("Egress", "Out")):
        if kind in policy.spec.policy_types and not any(one.side.direction == direction for one in drafts):
            yield cp.NetworkPolicyRule(direction=direction, from_=NOBODY, to=NOBODY, enable_logging=logging)


def reference(policy: KubePolicy) -> cp.NetworkPolicyReference:
    """How the policy is named wherever it is told of."""
    return cp.NetworkPolicyReference(type=KIND, namespace=policy.namespace, name=policy.name, uid=policy.uid)


def publication(facts: Facts, policy: InternalKubePolicy) -> Iterator[PublishedPolicy | GroupSpan]:
    """The policy for all Nodes that have a Pod it is for, and those Nodes for the groups of its peers."""
    span = facts.get(GroupNodes, policy.target)
    nodes = span.parts if span else ()
    yield PublishedPolicy(policy.found, nodes)
    for name in policy.peers if nodes else ():
        yield GroupSpan(ADDRESS, name, nodes)


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
        Unit(KubePolicy, internal_policy, yields=(Group, GroupSelector, InternalKubePolicy)),
        Unit(InternalKubePolicy, publication),
    ),
    publishes=(ADDRESS, APPLIED, "networkpolicies"),
)
