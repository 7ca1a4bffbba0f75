"""Rules of policies for one Pod in one direction, each compared with the packet.

A Kubernetes NetworkPolicy isolates in the directions of its policyTypes, whatever rules it has, as the API requires. In upstream
(pkg/controller/networkpolicy/networkpolicy_controller.go processNetworkPolicy) rules of a direction isolate in it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from antrea.apis.networking import NetworkPolicyEgressRule
from antrea.explain.l7 import lets_pass
from antrea.explain.rule import (
    CLUSTER,
    EGRESS,
    INGRESS,
    KUBE,
    NAMESPACED,
    RuleRef,
    Weighed,
    kube_traffic,
    names_of_any_kind,
    native_traffic,
    unbuilt,
    ways,
    weigh,
)
from antrea.explain.selector import fits
from antrea.explain.world import Chosen, Member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis import networking
    from antrea.apis.crd import network_policy as crd
    from antrea.explain.packet import End, Packet
    from antrea.explain.rule import Names
    from antrea.explain.world import World

    Native = crd.ClusterNetworkPolicy | crd.NetworkPolicy
    KubeRule = networking.NetworkPolicyIngressRule | networking.NetworkPolicyEgressRule


L7_ON_NODE_PORTS = "l7Protocols are not for NodePorts: all that the rule names is dropped"


L7_ON_MACHINES = "l7Protocols are not for ExternalNodes: all that the rule names is dropped"
SERVICES_ON_MACHINES = "toServices is not for ExternalNodes: the rule matches nothing"
NAMES_ON_MACHINES = "ports of ExternalNodes have no names: the rule matches nothing by these"


class Isolating(NamedTuple):
    """A Kubernetes NetworkPolicy that closes a Pod in a direction, and its rules there."""

    ref: RuleRef
    """Its first rule, or one that is not there."""
    rules: tuple[Weighed, ...]


class Silent(NamedTuple):
    """A policy, or one of its rules, that is there without effect."""

    ref: RuleRef
    why: str


def kube_policies(world: World, packet: Packet, member: Member, direction: str) -> Iterator[Isolating]:
    """Yield the policies that apply to the Pod and isolate it in this direction."""
    other = _other(packet, direction)
    for policy in world.objects.kube_policies:
        meta, spec = policy.metadata, policy.spec
        if meta.namespace != member.namespace or not fits(spec.pod_selector, member.labels):
            continue
        if world.is_absent(meta.annotations, meta.namespace):
            continue
        if not affects(spec, direction):
            continue
        rules: tuple[KubeRule, ...] = spec.ingress if direction == INGRESS else spec.egress
        refs = [kube_ref(policy, direction, number) for number in range(max(1, len(rules)))]
        weighed_rules = tuple(
            weigh(
                refs[number],
                packet,
                member,
                kube_traffic(rule.ports),
                _kube_ways(world, meta.namespace, rule, other),
            )
            for number, rule in enumerate(rules)
        )
        yield Isolating(refs[0], weighed_rules)


def affects(spec: networking.NetworkPolicySpec, direction: str) -> bool:
    """Whether a NetworkPolicy isolates in a direction; without policyTypes it has those that the API gives it."""
    if spec.policy_types:
        return direction in spec.policy_types
    return direction == INGRESS or bool(spec.egress)


def kube_ref(policy: networking.NetworkPolicy, direction: str, number: int) -> RuleRef:
    """Its rules have no names."""
    meta = policy.metadata
    return RuleRef(
        type=KUBE,
        namespace=meta.namespace,
        policy=meta.name,
        direction=direction,
        index=number,
        created=meta.creation_timestamp,
        uid=meta.uid,
    )


def _kube_ways(world: World, home: str, rule: KubeRule, other: End) -> Iterator[Names]:
    peers = rule.to if isinstance(rule, NetworkPolicyEgressRule) else rule.from_
    if not peers:
        yield from names_of_any_kind(world, other)
    for peer in peers:
        if peer.ip_block is not None:
            yield from ways(Chosen(blocks=(peer.ip_block,)), other)
        elif peer.is_known:
            yield from ways(Chosen(world.selected(home, peer.pod_selector, peer.namespace_selector)), other)


def native_rules(world: World, packet: Packet, member: Member, direction: str) -> Iterator[Weighed | Silent]:
    """Rules of Antrea's own policies for the Pod, in no order; and those without effect."""
    other = _other(packet, direction)
    policies: tuple[Native, ...] = (*world.objects.cluster_policies, *world.objects.policies)
    for policy in policies:
        home, spec = policy.metadata.namespace, policy.spec
        rules = spec.ingress if direction == INGRESS else spec.egress
        applied = [rule.applied_to or spec.applied_to for rule in rules]
        everywhere = [
            *spec.applied_to,
            *(subject for rule in (*spec.ingress, *spec.egress) for subject in rule.applied_to),
        ]
        strange = world.strange(home, everywhere)
        for number, rule in enumerate(rules):
            if member not in world.targets(home, applied[number]):
                continue
            if world.is_absent(policy.metadata.annotations, home, rule.name):
                continue
            ref = native_ref(world, policy, direction, number)
            if _is_reset(world, packet, rule):
                ref = msgspec.structs.replace(ref, action="Reject")
            if strange:
                why = f"Group {strange} selects Pods of other Namespaces, so that the policy holds nowhere"
                yield Silent(ref, why)
                continue
            if member.kind == "entity":
                yield _on_machine(world, home, rule, ref, packet, member, direction)
                continue
            services = direction == EGRESS and bool(rule.to_services)
            ways_there = (
                _service_ways(world, home, rule, packet)
                if services
                else _native_ways(world, home, rule, member, _named_by_itself(packet, rule, other), direction)
            )
            weighed = weigh(ref, packet, member, native_traffic(rule), ways_there)
            known = bool(packet.destination.names_of)
            lacks = tuple(unbuilt(world, rule, packet.request, names_are_known=known))
            yield weighed._replace(unbuilt=(*weighed.unbuilt, *lacks), services=services)


def _on_machine(
    world: World, home: str, rule: crd.Rule, ref: RuleRef, packet: Packet, member: Member, direction: str
) -> Weighed:
    """A rule on a machine outside the cluster, without what cannot be there."""
    numbered = tuple(port for port in rule.ports if not isinstance(port.port, str))
    lacks = [SERVICES_ON_MACHINES] if rule.to_services else []
    lacks += [NAMES_ON_MACHINES] if len(numbered) < len(rule.ports) else []
    if rule.l7_protocols:
        ref, lacks = msgspec.structs.replace(ref, action="Drop"), [*lacks, L7_ON_MACHINES]
    left = msgspec.structs.replace(rule, ports=numbered, l7_protocols=())
    is_empty = rule.to_services or (rule.ports and not numbered and not rule.protocols)
    there = (
        ()
        if is_empty
        else _native_ways(
            world, home, left, member, _named_by_itself(packet, left, _other(packet, direction)), direction
        )
    )
    known = bool(packet.destination.names_of)
    lacks += unbuilt(world, left, names_are_known=known)
    return weigh(ref, packet, member, native_traffic(left), there)._replace(unbuilt=tuple(lacks))


def node_port_rules(world: World, packet: Packet) -> Iterator[Weighed]:
    """Rules for the Service whose NodePort the packet was sent to: their peers are blocks of addresses."""
    space, _, name = packet.service.partition("/")
    service_member = Member("service", space, name, {}, frozenset(), ())
    for policy in world.objects.cluster_policies:
        spec = policy.spec
        for number, rule in enumerate(spec.ingress):
            wanted = (subject.service for subject in rule.applied_to or spec.applied_to)
            if not any(
                service is not None and (service.namespace, service.name) == (space, name)
                for service in wanted
            ):
                continue
            if world.is_absent(policy.metadata.annotations, "", rule.name):
                continue
            blocks = tuple(peer.ip_block for peer in rule.from_ if peer.ip_block is not None)
            peers = list(ways(Chosen(blocks=blocks), packet.source)) if rule.from_ else [()]
            ref, lacks = native_ref(world, policy, INGRESS, number), tuple(unbuilt(world, rule))
            if rule.l7_protocols:
                ref, lacks = msgspec.structs.replace(ref, action="Drop"), (L7_ON_NODE_PORTS,)
            yield weigh(ref, packet, service_member, native_traffic(rule), peers)._replace(unbuilt=lacks)


def _is_reset(world: World, packet: Packet, rule: crd.Rule) -> bool:
    """Whether the L7 engine ends a connection with this request."""
    if not (world.l7_policies and rule.l7_protocols and rule.action == "Allow" and packet.request):
        return False
    return not lets_pass(rule.l7_protocols, packet.request)


def unheld_rules(world: World, packet: Packet, direction: str) -> Iterator[Silent]:
    """Rules for an end that is neither a Pod nor a machine: those for Services judge NodePorts."""
    policies: tuple[Native, ...] = (*world.objects.cluster_policies, *world.objects.policies)
    for policy in policies:
        home, spec = policy.metadata.namespace, policy.spec
        for number, rule in enumerate(spec.ingress if direction == INGRESS else spec.egress):
            whats = (
                _no_pod(world, home, subject, packet, direction)
                for subject in rule.applied_to or spec.applied_to
            )
            if what := next(filter(None, whats), ""):
                yield Silent(native_ref(world, policy, direction, number), f"appliedTo {what}")


def _no_pod(world: World, home: str, applied: crd.AppliedTo, packet: Packet, direction: str) -> str:
    """Describe an end by this entry and why the rule does not apply; empty if the entry does not select it."""
    end = _other(packet, EGRESS if direction == INGRESS else INGRESS)
    if (service := applied.service) is not None:
        return _no_node_port(world, f"{service.namespace}/{service.name}", packet, end)
    for member in world.targets(home, (applied,)):
        if member.kind == "node" and member.name == end.host:
            return f"Node {member.name} has no effect: the feature gate NodeNetworkPolicy is off"
        if member.kind == "entity" and end.ip in member.ips:
            return f"ExternalEntity {member.namespace}/{member.name} has no effect: it is not an interface of an ExternalNode"
    return ""


def _no_node_port(world: World, name: str, packet: Packet, end: End) -> str:
    if name == end.service:
        return f"Service {name} is for connections to its NodePorts: the rule does not hold for its other addresses"
    space, _, service_name = name.partition("/")
    service = world.services.get((space, service_name))
    protocol_and_port = (packet.protocol, packet.port)
    ports = (
        [(port.protocol, port.node_port) for port in service.spec.ports if port.node_port] if service else []
    )
    if service is None or not end.host or packet.service or protocol_and_port not in ports:
        return ""
    if world.proxy is None or not world.proxy.all_addresses or not world.proxied(service):
        return f"Service {name} is not enforced: AntreaProxy does not serve its NodePorts"
    if packet.source.pod is not None:
        return f"Service {name} judges by the address with which the packet leaves the Node of its Pod: ask from that"
    return f"Service {name} is not for what a Node sends to itself"


def native_ref(world: World, policy: Native, direction: str, number: int) -> RuleRef:
    """Where no engine judges requests, a rule that allows application protocols is closed."""
    meta, spec = policy.metadata, policy.spec
    rule = (spec.ingress if direction == INGRESS else spec.egress)[number]
    tier, priority = world.tier(spec.tier)
    return RuleRef(
        type=NAMESPACED if meta.namespace else CLUSTER,
        namespace=meta.namespace,
        policy=meta.name,
        tier=tier,
        tier_priority=priority,
        priority=spec.priority,
        direction=direction,
        index=number,
        name=rule.name,
        action="Drop"
        if rule.l7_protocols and not (world.l7_policies and rule.action == "Allow")
        else rule.action,
        created=meta.creation_timestamp,
        uid=meta.uid,
    )


def _service_ways(world: World, home: str, rule: crd.Rule, packet: Packet) -> Iterator[Names]:
    """Services give no names to the ports of rules."""
    if any(world.serves(home, to_service, packet) for to_service in rule.to_services):
        yield ()


def _native_ways(
    world: World, home: str, rule: crd.Rule, member: Member, other: End, direction: str
) -> Iterator[Names]:
    peers = rule.to if direction == EGRESS else rule.from_
    if not peers:
        yield from names_of_any_kind(world, other)
    for peer in peers:
        yield from ways(world.peers(home, peer, member), other)


def _named_by_itself(packet: Packet, rule: crd.Rule, other: End) -> End:
    """The other end, with the names for rules that drop or reject alone."""
    untrusted_names = dict(packet.own_names).get(other.ip, ()) if rule.action in ("Drop", "Reject") else ()
    return (
        msgspec.structs.replace(other, names=(*other.names, *untrusted_names)) if untrusted_names else other
    )


def _other(packet: Packet, direction: str) -> End:
    return packet.destination if direction == EGRESS else packet.source
