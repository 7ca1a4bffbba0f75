"""Computation of group members from Pods, ExternalEntities, Nodes and selectors.

A label set finds its selectors by its own labels, so that a new selector is compared only with Pods that have the label it
requires, and a new Pod of a known Deployment with nothing at all.
parity: pkg/controller/grouping
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import core
from antrea.engine import Unit
from antrea.facts.cluster import ClusterNode, Entity, Namespace, Pod, PodFeedProgress
from antrea.facts.group import (
    ENTITY,
    NODE,
    UNPUBLISHED,
    AppliedNode,
    ForeignMember,
    GroupNodes,
    GroupPorts,
    GroupSelector,
    Matches,
    PublishedGroup,
    UnenforcedMember,
    label_set,
)
from antrea.facts.machine import AgentMachine
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.grouping.member import (
    ADDRESS,
    APPLIED,
    MEMBERS,
    PORTS,
    entity_member,
    node_member,
    service_member,
)
from antrea.features.grouping.publication import (
    Membership,
    MembershipCandidate,
    Memberships,
    ProcessedPods,
)
from antrea.features.grouping.row import namespace_row, pod_row
from antrea.features.grouping.selector import candidate_places, selects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.controlplane import GroupMember
    from antrea.engine import Facts

    Belongs = Membership | GroupNodes | GroupPorts | MembershipCandidate | ForeignMember


def matches(facts: Facts, labels: str) -> Iterator[Matches]:
    """Yield the selectors that match these labels, and the groups made of them."""
    labels_found = label_set(labels)
    selectors: dict[str, None] = {}
    groups: dict[PublishedGroup, None] = {}
    home = facts.get(Namespace, labels_found.namespace) if labels_found.namespace else None
    for place in candidate_places(labels_found, home):
        for selector in facts.by(GroupSelector, "place", place):
            if selects(selector, labels_found, home):
                selectors[selector.name] = None
                for group in selector.parts:
                    groups[group] = None
    if not selectors:
        return
    groups.pop(UNPUBLISHED, None)
    by_resource: dict[str, list[str]] = {}
    homes: list[PublishedGroup] = []
    for group in groups:
        if group.home:
            homes.append(group)
        elif group.resource in by_resource:
            by_resource[group.resource].append(group.name)
        else:
            by_resource[group.resource] = [group.name]
    names = tuple([(resource, tuple(names)) for resource, names in by_resource.items()])
    yield Matches(labels, tuple(selectors), tuple(groups), names, tuple(homes))


def _groups(facts: Facts, labels: str) -> tuple[PublishedGroup, ...]:
    matching = facts.get(Matches, labels)
    return matching.groups if matching else ()


def memberships(facts: Facts, pod: Pod) -> Iterator[Memberships | Belongs]:
    """Yield all groups that this Pod is in; policies follow the Nodes of their targets."""
    matching = facts.get(Matches, pod.labels)
    if matching is None:
        return
    members, node = [], (pod.node,)
    for resource, names in matching.group_names:
        member = MEMBERS[resource](pod)
        members.append(member)
        if resource == APPLIED and member is not None:
            for name in names:
                yield GroupNodes(name, node)
        if resource == PORTS:
            yield from _group_ports(pod, names)
    if any(members):
        yield Memberships(pod.key, pod.node, matching.group_names, tuple(members))
    for group in matching.homes:
        if group.home != pod.namespace:
            yield ForeignMember(group.key)
        elif (member := MEMBERS[group.resource](pod)) is not None:
            yield from _belongs(group, pod.key, member, pod.node)


def _group_ports(pod: Pod, names: tuple[str, ...]) -> Iterator[GroupPorts]:
    ports = _named_ports(pod)
    for name in names if not pod.host_network else ():
        yield GroupPorts(name, ports)


def _named_ports(labelled: Pod | Entity) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({("", ""), *((name, protocol) for name, _, protocol in labelled.ports)}))


def entity_memberships(facts: Facts, entity: Entity) -> Iterator[Belongs | UnenforcedMember]:
    """Yield all groups of an ExternalEntity; policies are for those with an agent."""
    for group in _groups(facts, entity.labels):
        if group.resource == APPLIED and facts.get(AgentMachine, entity.node) is None:
            yield UnenforcedMember(group.name, entity.key)
        if group.resource == PORTS:
            yield GroupPorts(group.name, _named_ports(entity))
        elif group.home and group.home != entity.namespace:
            yield ForeignMember(group.key)
        elif group.resource == ADDRESS or (group.resource == APPLIED and entity.node):
            member = entity_member(entity, addresses=group.resource == ADDRESS)
            yield from _belongs(group, f"{ENTITY} {entity.key}", member, entity.node)


def node_memberships(facts: Facts, node: ClusterNode) -> Iterator[Belongs | AppliedNode]:
    """Yield all groups of a Node, which also enforces policies for a Service."""
    for group in _groups(facts, node.labels):
        if group.resource in {ADDRESS, APPLIED}:
            member = node_member(node, addresses=group.resource == ADDRESS)
            yield from _belongs(group, f"{NODE} {node.name}", member, node.name)
        if group.resource == APPLIED:
            yield AppliedNode(group.name, node.name)
    for group in facts.by(PublishedGroup, "everywhere", True):
        if group.service:
            yield from _belongs(group, f"{NODE} {node.name}", service_member(*group.service), node.name)


def _belongs(group: PublishedGroup, who: str, member: GroupMember, node: str) -> Iterator[Belongs]:
    if group.home:
        yield MembershipCandidate((group.resource, group.name), who, member, node)
        return
    yield Membership(group.resource, group.name, who, member, node)
    if group.resource == APPLIED:
        yield GroupNodes(group.name, (node,))


def same_namespace_members(facts: Facts, candidate: MembershipCandidate) -> Iterator[Belongs]:
    """Yield the members of a group with a home; it has none if it selects one of another Namespace: policies for it are not
    realized.
    """
    resource, name = candidate.group
    if facts.get(ForeignMember, f"{resource}/{name}") is None:
        yield from _belongs(PublishedGroup(resource, name), candidate.who, candidate.member, candidate.node)


def processed(_: Facts, heard: PodFeedProgress) -> Iterator[ProcessedPods]:
    """Yield the progress after all changes of the Pods of that Node."""
    yield ProcessedPods(heard.node, heard.version)


_MEMBERS = (Pod, Entity, ClusterNode)
_MEASURED = (ADDRESS, APPLIED)
"""Resources whose computation is measured; one unit computes all groups of an object, of both kinds."""
FEATURE = ControllerFeature(
    name="Grouping",
    watched=(
        Watched("/api/v1/pods", core.Pod, Pod, pod_row),
        Watched("/api/v1/namespaces", core.Namespace, Namespace, namespace_row, guards="its Pods"),
    ),
    units=(
        *(Unit(kind, matches, by="labels", yields=(Matches,), measured_as=_MEASURED) for kind in _MEMBERS),
        Unit(
            Pod,
            memberships,
            yields=(GroupNodes, GroupPorts, MembershipCandidate, ForeignMember),
            measured_as=_MEASURED,
        ),
        Unit(
            Entity,
            entity_memberships,
            yields=(GroupNodes, GroupPorts, MembershipCandidate, ForeignMember, UnenforcedMember),
            measured_as=_MEASURED,
        ),
        Unit(ClusterNode, node_memberships, yields=(GroupNodes, AppliedNode), measured_as=_MEASURED),
        Unit(MembershipCandidate, same_namespace_members, yields=(GroupNodes,), measured_as=_MEASURED),
        Unit(PodFeedProgress, processed),
    ),
)
FEATURES = (FEATURE,)
