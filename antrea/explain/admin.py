"""Policies of policy.networking.k8s.io: the rules of theirs that are for one Pod, each held against the packet.

What is not known of a rule is closed: one that accepts matches nothing by it, one that denies or passes on denies all by it.
Source: sigs.k8s.io/network-policy-api apis/v1alpha1, apis/v1alpha2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.crd.part import IPBlock
from antrea.apis.network_policy_api.part import EgressPeer
from antrea.apis.network_policy_api.v1alpha1 import PolicyPort
from antrea.explain.address import readable
from antrea.explain.rule import (
    ADMIN,
    BASELINE_ADMIN,
    INGRESS,
    TIERED,
    RuleRef,
    Traffic,
    names_of_any_kind,
    ways,
    weigh,
)
from antrea.explain.world import Chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.network_policy_api.part import AdminPolicySpec, Rule, Subject
    from antrea.apis.network_policy_api.v1alpha1 import AdminNetworkPolicy, BaselineAdminNetworkPolicy
    from antrea.apis.network_policy_api.v1alpha2 import ClusterNetworkPolicy, PolicyProtocol
    from antrea.explain.packet import Packet
    from antrea.explain.rule import Names, Weighed
    from antrea.explain.world import Member, World

    AdminPolicy = AdminNetworkPolicy | BaselineAdminNetworkPolicy | ClusterNetworkPolicy

TIERS = {ADMIN: {"Admin": 251}, BASELINE_ADMIN: {"Baseline": 254}, TIERED: {"Admin": 220, "Baseline": 254}}
"""Priorities of tiers by kind of policy."""
ALLOW, DROP = "Allow", "Drop"
ACTIONS = {"Allow": ALLOW, "Accept": ALLOW, "Deny": DROP, "Pass": "Pass"}
NAMES = "domainNames match by the names of --name alone: which names DNS gave this address to is not asked"
CLOSED = "a part of it is not known here: it matches nothing by that if it accepts, and denies if not"


class Parts(NamedTuple):
    """Known parts of a rule."""

    known: tuple[Subject, ...]
    traffic: tuple[Traffic, ...]
    odd_peers: bool
    odd_ports: bool


def admin_rules(world: World, packet: Packet, member: Member, direction: str) -> Iterator[Weighed]:
    """Yield the rules that apply to the Pod, in no order."""
    objects = world.objects
    for kind, policies in (
        (ADMIN, objects.admin_policies),
        (BASELINE_ADMIN, objects.baseline_policies),
        (TIERED, objects.tiered_policies),
    ):
        for policy in policies:
            if member in _members(world, policy.spec.subject):
                for number, rule in enumerate(_rules(policy.spec, direction)):
                    if world.is_absent(policy.metadata.annotations, "", rule.name):
                        continue
                    ref = admin_ref(kind, policy, direction, number)
                    yield _weighed(world, packet, member, ref, rule)


def _rules(spec: AdminPolicySpec, direction: str) -> tuple[Rule, ...]:
    return dict(spec.rules)["In" if direction == INGRESS else "Out"]


def admin_ref(kind: str, policy: AdminPolicy, direction: str, number: int) -> RuleRef:
    """Its action is what is enforced."""
    meta, (tier, priority) = policy.metadata, policy.spec.place
    rule = _rules(policy.spec, direction)[number]
    parts = _parts(rule)
    action = ACTIONS.get(rule.action, DROP)
    if action != ALLOW and (parts.odd_peers or parts.odd_ports):
        action = DROP
    tier = tier if tier in TIERS[kind] else "Admin"
    return RuleRef(
        type=kind,
        policy=meta.name,
        tier=tier,
        tier_priority=TIERS[kind][tier],
        priority=priority,
        direction=direction,
        index=number,
        name=rule.name,
        action=action,
        created=meta.creation_timestamp,
        uid=meta.uid,
    )


def _weighed(world: World, packet: Packet, member: Member, ref: RuleRef, rule: Rule) -> Weighed:
    other = packet.source if ref.direction == INGRESS else packet.destination
    parts, closes = _parts(rule), ref.action == DROP
    traffic: tuple[Traffic, ...] = () if closes and parts.odd_ports else parts.traffic
    receivers: list[Names] = []
    if closes and parts.odd_peers:
        receivers = list(names_of_any_kind(world, other))
    elif closes or traffic or not rule.traffic:
        receivers = [
            names for peer in parts.known for chosen in _chosen(world, peer) for names in ways(chosen, other)
        ]
    weighed = weigh(ref, packet, member, traffic, receivers)
    doubts = [CLOSED] if parts.odd_peers or parts.odd_ports else []
    by_name = any(isinstance(peer, EgressPeer) and peer.domain_names for peer in parts.known)
    if by_name and not packet.destination.names_of:
        doubts.append(NAMES)
    return weighed._replace(unbuilt=(*weighed.unbuilt, *doubts))


def _parts(rule: Rule) -> Parts:
    known = tuple(peer for peer in rule.peers if _is_known(peer))
    odd = any(not _is_known(peer) or _odd_networks(peer) for peer in rule.peers)
    traffic = [
        _port(traffic_item) if isinstance(traffic_item, PolicyPort) else _protocol(traffic_item)
        for traffic_item in rule.traffic
    ]
    return Parts(known, tuple(filter(None, traffic)), odd, None in traffic)


def _is_known(peer: Subject) -> bool:
    further = isinstance(peer, EgressPeer) and (
        peer.nodes is not None or bool(peer.domain_names or peer.networks)
    )
    return peer.pods is not None or peer.namespaces is not None or further


def _odd_networks(peer: Subject) -> bool:
    first = peer.pods is not None or peer.namespaces is not None
    networks = peer.networks if isinstance(peer, EgressPeer) and peer.nodes is None and not first else ()
    return not all(readable(IPBlock(cidr)) for cidr in networks)


def _members(world: World, peer: Subject) -> tuple[Member, ...]:
    if peer.pods is not None:
        return world.selected("", peer.pods.pod_selector, peer.pods.namespace_selector)
    if peer.namespaces is not None:
        return world.selected("", None, peer.namespaces)
    return ()


def _chosen(world: World, peer: Subject) -> Iterator[Chosen]:
    if peer.pods is not None or peer.namespaces is not None or not isinstance(peer, EgressPeer):
        yield Chosen(_members(world, peer))
    elif peer.nodes is not None:
        yield Chosen(world.selected("", nodes=peer.nodes))
    else:
        yield Chosen(blocks=tuple(IPBlock(cidr) for cidr in peer.networks if readable(IPBlock(cidr))))
        for name in peer.domain_names:
            yield Chosen(pattern=name.lower().rstrip("."))


def _port(port: PolicyPort) -> Traffic | None:
    if (number := port.port_number) is not None:
        return Traffic(number.protocol, number.port) if number.port else None
    if (some := port.some_ports) is not None:
        return Traffic(some.protocol, some.start, some.end) if 0 < some.start <= some.end else None
    return Traffic("", port.named_port) if port.named_port else None


def _protocol(policy_protocol: PolicyProtocol) -> Traffic | None:
    if policy_protocol.destination_named_port:
        return Traffic("", policy_protocol.destination_named_port)
    for protocol, ports in (
        ("TCP", policy_protocol.tcp),
        ("UDP", policy_protocol.udp),
        ("SCTP", policy_protocol.sctp),
    ):
        to = ports.destination_port if ports is not None else None
        if to is not None and (some := to.range) is not None:
            return Traffic(protocol, some.start, some.end) if 0 < some.start <= some.end else None
        if to is not None:
            return Traffic(protocol, to.number) if to.number else None
    return None
