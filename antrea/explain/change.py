"""The smallest change to policies that would turn a verdict over, tried on the objects before it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from antrea.apis import networking
from antrea.apis.crd import network_policy as crd
from antrea.apis.crd.part import LabelSelector, Metadata
from antrea.explain.packet import PORTED, family, pod_name
from antrea.explain.policy import kube_policies
from antrea.explain.rule import ADMIN, BASELINE_ADMIN, CLUSTER, EGRESS, INGRESS, KUBE, TIERED
from antrea.explain.selector import format_selector
from antrea.explain.verdict import half, judged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.explain.objects import Objects
    from antrea.explain.packet import End, Packet
    from antrea.explain.rule import RuleRef
    from antrea.explain.verdict import Half
    from antrea.explain.world import World

    Rules = tuple[Any, ...]

NAME = "kubernetes.io/metadata.name"
"""A label that every Namespace has."""
ADMIN_FIELDS = {ADMIN: "admin_policies", BASELINE_ADMIN: "baseline_policies", TIERED: "tiered_policies"}
FIELDS = {KUBE: "kube_policies", CLUSTER: "cluster_policies", **ADMIN_FIELDS}


class Change(NamedTuple):
    """Change of objects, as a sentence, and the objects after it."""

    sentence: str
    objects: Objects


def changes(world: World, packet: Packet) -> tuple[str, ...]:
    """Return changes that would allow a denied packet, in order; or that would deny an allowed one.

    Empty if no policy can.
    """
    halves = judged(world, packet)
    world = world.near(packet)
    if halves.verdict == "Allow":
        for closable in _closable(halves.ingress, halves.egress):
            if (change := _turned(world, packet, closable)) is not None:
                return (change.sentence,)
        return ()
    said: list[str] = []
    for direction in (EGRESS, INGRESS):
        now = half(world, packet, direction)
        if now.verdict != "Allow":
            if not now.pod:
                return ()  # a Node: which policy decides is said, and what would change it is not
            change = _turned(world, packet, now)
            if change is None:
                return ()
            said.append(change.sentence)
            world = world.with_policies(change.objects)
    return tuple(said)


def _closable(ingress: Half, egress: Half) -> Iterator[Half]:
    """The halves that a policy can close; where the packet arrives first, unless a rule lets it leave."""
    ordered = (egress, ingress) if egress.reason == "rule" and ingress.reason != "rule" else (ingress, egress)
    return (half for half in ordered if half.reason != "exempt" and half.pod)


def _turned(world: World, packet: Packet, now: Half) -> Change | None:
    """The first change that gives this half another verdict."""
    allow = now.verdict == "Allow"
    for change in _candidates(world, packet, now):
        after = half(world.with_policies(change.objects), packet, now.direction).verdict
        if (after == "Allow") != allow:
            return change
    return None


def _candidates(world: World, packet: Packet, now: Half) -> Iterator[Change]:
    rule = now.rule
    if now.reason == "isolation":
        yield from _openings(world, packet, now)
    elif now.reason == "nothing":
        closed = now.direction == EGRESS and packet.destination.service
        yield _service_closed(world, packet) if closed else _closed(world, packet, now)
    elif rule is not None and rule.tier:
        yield from _of_antrea(world, rule)
    elif rule is not None:
        yield _without_all(world, (rule, *_also(now)))


def _also(now: Half) -> Iterator[RuleRef]:
    """Other rules of Kubernetes that allow the packet."""
    return (losing.rule for losing in now.lost if losing.rule.type == KUBE)


# rules of Antrea's own


def _of_antrea(world: World, rule: RuleRef) -> Iterator[Change]:
    yield _without_all(world, (rule,))
    if rule.type in ADMIN_FIELDS:
        yield _other_admin_action(world, rule)
        return
    if _original(world.objects, rule).l7_protocols:
        objects = _edited(world.objects, rule, _replaced(rule.index, l7_protocols=(), action="Allow"))
        yield Change(f"Remove l7Protocols from {rule.title}.", objects)
        return
    other = "Drop" if rule.action == "Allow" else "Allow"
    objects = _edited(world.objects, rule, _replaced(rule.index, action=other))
    yield Change(f"Change the action of {rule.title} from {rule.action} to {other}.", objects)


def _other_admin_action(world: World, rule: RuleRef) -> Change:
    now = _original(world.objects, rule).action
    accept = "Accept" if rule.type == TIERED else "Allow"
    other = accept if now != accept else "Deny"
    objects = _edited(world.objects, rule, _replaced(rule.index, action=other))
    return Change(f"Change the action of {rule.title} from {now} to {other}.", objects)


def _without_all(world: World, rules: tuple[RuleRef, ...]) -> Change:
    objects = world.objects
    # from the last on, so that numbers stay true
    for rule in sorted(rules, key=lambda rule: -rule.index):
        objects = _edited(objects, rule, lambda rules, at=rule.index: (*rules[:at], *rules[at + 1 :]))  # type: ignore[misc]
    return Change(f"Delete {' and '.join(rule.title for rule in rules)}.", objects)


# isolation


def _openings(world: World, packet: Packet, now: Half) -> Iterator[Change]:
    """A port more, else a peer more, else a rule more."""
    end, other = packet.source, packet.destination
    if now.direction == INGRESS:
        end, other = other, end
    if end.pod is None:
        return
    policies = list(kube_policies(world, packet, world.member(end.pod), now.direction))
    port = _port(packet)
    weighed = [rule for policy in policies for rule in policy.rules]
    for weighed_rule in weighed:
        if weighed_rule.peer and port is not None:
            yield Change(
                f"Add port {packet.description} to {weighed_rule.ref.title}.",
                _edited(world.objects, weighed_rule.ref, _grown(weighed_rule.ref.index, "ports", port)),
            )
    peer, text = _peer(end, other)
    side = "from" if now.direction == INGRESS else "to"
    for weighed_rule in weighed:
        if weighed_rule.ports:
            field = "from_" if now.direction == INGRESS else "to"
            yield Change(
                f"Add a peer with {text} to `{side}` of {weighed_rule.ref.title}.",
                _edited(world.objects, weighed_rule.ref, _grown(weighed_rule.ref.index, field, peer)),
            )
    ref = policies[0].ref
    kind: Any = networking.NetworkPolicyIngressRule
    rule = kind(from_=(peer,), ports=(port,) if port else ())
    if now.direction == EGRESS:
        rule = networking.NetworkPolicyEgressRule(to=(peer,), ports=(port,) if port else ())
    what = f"port {packet.description}" if port else "no ports"
    yield Change(
        f"Add an {now.direction.lower()} rule with {text} in `{side}` and {what} to {ref.owner}.",
        _edited(world.objects, ref, lambda rules: (*rules, rule)),
    )


def _port(packet: Packet) -> networking.NetworkPolicyPort | None:
    """None: rules of Kubernetes do not know the protocol, so that only one without ports lets it pass."""
    if packet.protocol not in PORTED:
        return None
    return networking.NetworkPolicyPort(packet.protocol, packet.port)


def _peer(end: End, other: End) -> tuple[networking.NetworkPolicyPeer, str]:
    """A peer that means the other end, and no more than its labels allow."""
    if other.pod is None or end.pod is None:
        cidr = f"{other.ip}/{32 if family(other.ip) == 4 else 128}"
        return networking.NetworkPolicyPeer(ip_block=networking.IPBlock(cidr)), f"ipBlock {cidr}"
    meta = other.pod.metadata
    selector = LabelSelector(match_labels=meta.labels)
    text = f"podSelector {format_selector(selector)}"
    if meta.namespace == end.pod.metadata.namespace:
        return networking.NetworkPolicyPeer(pod_selector=selector), text
    space = LabelSelector(match_labels={NAME: meta.namespace})
    peer = networking.NetworkPolicyPeer(pod_selector=selector, namespace_selector=space)
    return peer, f"{text} and namespaceSelector {format_selector(space)}"


# nothing speaks of the packet


def _closed(world: World, packet: Packet, now: Half) -> Change:
    end = packet.destination if now.direction == INGRESS else packet.source
    pod = end.pod
    assert pod is not None  # noqa: S101 (exempt otherwise)
    meta = pod.metadata
    selector = LabelSelector(match_labels=meta.labels)
    policy = networking.NetworkPolicy(
        Metadata(name="new", namespace=meta.namespace),
        networking.NetworkPolicySpec(pod_selector=selector, policy_types=(now.direction,)),
    )
    objects = msgspec.structs.replace(world.objects, kube_policies=(*world.objects.kube_policies, policy))
    return Change(
        f"Create a NetworkPolicy in Namespace {meta.namespace} with podSelector {format_selector(selector)}, policyTypes"
        f" [{now.direction}] and no rule: it isolates Pod {pod_name(pod)}.",
        objects,
    )


def _service_closed(world: World, packet: Packet) -> Change:
    pod = packet.source.pod
    assert pod is not None  # noqa: S101 (exempt otherwise)
    meta = pod.metadata
    selector = LabelSelector(match_labels=meta.labels)
    space, _, name = packet.destination.service.partition("/")
    rule = crd.Rule(action="Drop", to_services=(crd.PeerService(name, space),))
    spec = crd.NetworkPolicySpec(
        priority=1, applied_to=(crd.AppliedTo(pod_selector=selector),), egress=(rule,)
    )
    policy = crd.NetworkPolicy(Metadata(name="new", namespace=meta.namespace), spec)
    objects = msgspec.structs.replace(world.objects, policies=(*world.objects.policies, policy))
    return Change(
        f"Create an Antrea NetworkPolicy in Namespace {meta.namespace} with podSelector {format_selector(selector)} in appliedTo"
        f" and an egress rule that drops toServices {packet.destination.service}.",
        objects,
    )


# objects with another rule


def _original(objects: Objects, ref: RuleRef) -> Any:
    for policy in getattr(objects, FIELDS.get(ref.type, "policies")):
        if (policy.metadata.namespace, policy.metadata.name) == (ref.namespace, ref.policy):
            return getattr(policy.spec, ref.direction.lower())[ref.index]
    raise LookupError(ref.title)


def _edited(objects: Objects, ref: RuleRef, edit: Callable[[Rules], Rules]) -> Objects:
    """The rules of one policy and direction made others."""
    field, side = FIELDS.get(ref.type, "policies"), ref.direction.lower()

    def one(policy: Any) -> Any:
        meta = policy.metadata
        if (meta.namespace, meta.name) != (ref.namespace, ref.policy):
            return policy
        spec = msgspec.structs.replace(policy.spec, **{side: edit(getattr(policy.spec, side))})
        return msgspec.structs.replace(policy, spec=spec)

    return msgspec.structs.replace(objects, **{field: tuple(one(each) for each in getattr(objects, field))})


def _replaced(index: int, **fields: Any) -> Callable[[Rules], Rules]:
    return lambda rules: (
        *rules[:index],
        msgspec.structs.replace(rules[index], **fields),
        *rules[index + 1 :],
    )


def _grown(index: int, field: str, more: Any) -> Callable[[Rules], Rules]:
    def grown(rules: Rules) -> Rules:
        return _replaced(index, **{field: (*getattr(rules[index], field), more)})(rules)

    return grown
