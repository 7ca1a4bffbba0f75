"""Parts of Antrea's own policies that no switch enforces: the author is warned, and the status does not report them as
realized.

`tests/unit/features/network_policy/test_features_policy_unbuilt.py` compares every field of the schema with this module: it is
enforced, or it is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.group import ENTITY, NODE
from antrea.features.grouping.selector import NEVER, requirements
from antrea.features.network_policy.controller.antrea_peer import STRETCHED
from antrea.features.network_policy.controller.group import WholeGroup, group_key
from antrea.features.network_policy.controller.peer import read_block, unreadable
from antrea.features.network_policy.internal_policy import PORTION

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from antrea.apis.crd.network_policy import (
        AppliedTo,
        ClusterNetworkPolicySpec,
        NetworkPolicySpec,
        Peer,
        Rule,
    )
    from antrea.apis.crd.part import IPBlock, LabelSelector
    from antrea.engine import Facts
    from antrea.features.network_policy.audit_mode import AuditMode

    Spec = ClusterNetworkPolicySpec | NetworkPolicySpec

NOTHING = "it matches nothing"
NOT_THERE = "the policy does not hold there"
NOBODY = "it is nobody"
ALL_DROPPED = "all that the rule names is dropped"
NOT_AUDITED = "the rule is neither enforced nor audited"
NO_MACHINE = "has no ExternalNode whose agent could enforce policies (feature gate ExternalNode): the policy does not hold there"
"""Text after the name of an ExternalEntity that policies are for."""


def unbuilt_parts(spec: Spec) -> Iterator[str | None]:
    """Yield one sentence for each part, after the path of the field; None where it may pause."""
    for direction, rules in (("ingress", spec.ingress), ("egress", spec.egress)):
        for index, rule in enumerate(rules):
            path = f"spec.{direction}[{index}]"
            yield from _rule(path, rule)
            ends = (*spec.applied_to, *rule.applied_to)
            if any(end.node_selector is not None for end in ends):
                yield from _node_rule(path, direction, rule)
            if any(end.external_entity_selector is not None for end in ends):
                yield from _machine_rule(path, rule)
            if rule.l7_protocols and any(end.service is not None for end in ends):
                yield f"{path}.l7Protocols is not built for Services yet: {ALL_DROPPED}"
            if any(end.service is not None for end in ends):
                yield from _service_rule(path, rule)
            yield from _peers(f"{path}.from", rule.from_)
            yield from _peers(f"{path}.to", rule.to)


def unheld_parts(facts: Facts, namespace: str, spec: Spec) -> Iterator[str | None]:
    """Yield the unbuilt parts, contradictions that admission refuses, and groups that policies cannot be for."""
    yield from unbuilt_parts(spec)
    yield from _groups(facts, namespace, "spec.appliedTo", spec.applied_to)
    yield from _impossible("spec.appliedTo", spec.applied_to)
    if namespace:
        yield from _foreign_services("spec.appliedTo", spec.applied_to)
    for direction, rules in (("ingress", spec.ingress), ("egress", spec.egress)):
        for index, rule in enumerate(rules):
            path = f"spec.{direction}[{index}]"
            yield from _groups(facts, namespace, f"{path}.appliedTo", rule.applied_to)
            kinds = _group_kinds(facts, namespace, (*spec.applied_to, *rule.applied_to))
            if namespace:
                yield from _foreign_services(f"{path}.appliedTo", rule.applied_to)
            elif any(end.service is not None for end in (*spec.applied_to, *rule.applied_to)):
                yield from _on_services(path, direction, rule)
            if NODE in kinds:
                yield from _node_rule(path, direction, rule)
            if ENTITY in kinds:
                yield from _machine_rule(path, rule)
            for field, ends in (("appliedTo", rule.applied_to), ("from", rule.from_), ("to", rule.to)):
                yield from _impossible(f"{path}.{field}", ends)
                yield from _blocks(f"{path}.{field}", ends)


def unjudged_parts(spec: Spec, mode: AuditMode) -> Iterator[str]:
    """Yield why no copy is judged by an audited rule, after the path of the field."""
    for direction, rules in (("ingress", spec.ingress), ("egress", spec.egress)):
        for index, rule in enumerate(rules):
            if not mode.has(rule.name):
                continue
            path = f"spec.{direction}[{index}]"
            if rule.to_services:
                yield f"{path}.toServices is audited by AntreaProxy alone: where kube-proxy serves Services, {NOT_AUDITED}"
            if any(end.service is not None for end in (*spec.applied_to, *rule.applied_to)):
                yield f"{path} is for a Service: {NOT_AUDITED}"


def _unbuilt(path: str, instead: str) -> str:
    return f"{path} is not built yet: {instead}"


def _rule(path: str, rule: Rule) -> Iterator[str]:
    for number, service in enumerate(rule.to_services):
        if service.scope == STRETCHED:
            yield _unbuilt(f"{path}.toServices[{number}].scope", NOTHING)
    for number, protocol in enumerate(rule.protocols):
        if protocol.igmp is not None:
            yield _unbuilt(f"{path}.protocols[{number}].igmp", NOTHING)


def _node_rule(path: str, direction: str, rule: Rule) -> Iterator[str]:
    """Yield parts that a rule on Pods supports and one on Nodes does not: what a Node sends goes to Pods, whose ports have
    names.
    """
    if rule.l7_protocols:
        yield f"{path}.l7Protocols is not built for Nodes yet: {ALL_DROPPED}"
    for number, port in enumerate(rule.ports if direction == "ingress" else ()):
        if isinstance(port.port, str):
            yield f"{path}.ports[{number}].port is a name, and ports of Nodes have none: {NOTHING}"


def _machine_rule(path: str, rule: Rule) -> Iterator[str]:
    """Yield parts that a rule on machines outside the cluster does not support."""
    if rule.l7_protocols:
        yield f"{path}.l7Protocols is not built for ExternalNodes yet: {ALL_DROPPED}"
    if rule.to_services:
        yield f"{path}.toServices is not built for ExternalNodes yet: {NOTHING}"
    for number, port in enumerate(rule.ports):
        if isinstance(port.port, str):
            yield f"{path}.ports[{number}].port is a name, and ports of ExternalNodes have none: {NOTHING}"


def _service_rule(path: str, rule: Rule) -> Iterator[str]:
    """Yield parts that a rule on Services does not support."""
    for number, port in enumerate(rule.ports):
        if isinstance(port.port, str):
            yield f"{path}.ports[{number}].port is a name, and Services give ports of rules none: {NOTHING}"


def _foreign_services(path: str, applied: Sequence[AppliedTo]) -> Iterator[str]:
    """Yield Services as targets of a namespaced policy, whose schema has no such field: Services are entry points for all."""
    for number, target in enumerate(applied):
        if target.service is not None:
            yield f"{path}[{number}].service is for policies of the cluster alone: {NOT_THERE}"


def _on_services(path: str, direction: str, rule: Rule) -> Iterator[str | None]:
    """Yield what admission refuses in a rule on Services: egress, and peers that are not addresses."""
    if direction == "egress":
        yield f"{path} is on what Services send, which is nothing: {NOT_THERE}"
    for number, peer in enumerate(rule.from_):
        if peer.ip_block is None:
            yield f"{path}.from[{number}] is not an ipBlock, which a rule on Services requires: {NOT_THERE}"
        if number % PORTION == 0:
            yield None


def _group_kinds(facts: Facts, namespace: str, applied: Iterable[AppliedTo]) -> set[str]:
    """Return the kinds that groups among the targets select."""
    groups = [facts.get(WholeGroup, group_key(namespace, target.group)) for target in applied if target.group]
    return {selector.kind for group in groups if group for selector in group.applied()}


def _peers(path: str, peers: Sequence[Peer]) -> Iterator[str | None]:
    for number, peer in enumerate(peers):
        if peer.scope == STRETCHED:
            yield _unbuilt(f"{path}[{number}].scope", "it matches Pods of this cluster alone")
        if number % PORTION == 0:
            yield None


def _groups(facts: Facts, namespace: str, path: str, applied: Iterable[AppliedTo]) -> Iterator[str]:
    for number, target in enumerate(applied):
        group = facts.get(WholeGroup, group_key(namespace, target.group)) if target.group else None
        if group and group.parent and any(selector.kind == NODE for selector in group.selectors):
            yield f"{path}[{number}].group has children that select Nodes: {NOT_THERE}"


def _impossible(path: str, ends: Iterable[AppliedTo | Peer]) -> Iterator[str | None]:
    for number, end in enumerate(ends):
        for name, selector in _selectors(end):
            if selector is not None and requirements(selector) == (NEVER,):
                yield f"{path}[{number}].{name} has a key or value that no label has: {NOBODY}"
        if number % PORTION == 0:
            yield None


def _selectors(end: AppliedTo | Peer) -> tuple[tuple[str, LabelSelector | None], ...]:
    return (
        ("podSelector", end.pod_selector),
        ("namespaceSelector", end.namespace_selector),
        ("externalEntitySelector", end.external_entity_selector),
        ("nodeSelector", end.node_selector),
    )


def _unreadable(block: IPBlock) -> Generator[None, None, str]:
    """Return why a block is invalid, with pauses; empty if it is valid."""
    try:
        yield from read_block(block)
    except ValueError:
        return unreadable(block)
    return ""


def _blocks(path: str, ends: Iterable[AppliedTo | Peer]) -> Generator[str | None, None, None]:
    for number, end in enumerate(ends):
        block = getattr(end, "ip_block", None)
        if block is not None and (why := (yield from _unreadable(block))):
            yield f"{path}[{number}].ipBlock.{why}: {NOBODY}"
        if number % PORTION == 0:
            yield None
