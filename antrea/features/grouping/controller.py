"""From Pods, ExternalEntities, Nodes and selectors to members of groups.

A label set finds its selectors by its own labels, so that a new selector is weighed only against Pods that have the
label it asks for, and a new Pod of a known Deployment against nothing at all.
parity: pkg/controller/grouping
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import core
from antrea.engine import Unit
from antrea.facts.cluster import ClusterNode, Entity, Namespace, NodeHeard, Pod
from antrea.facts.group import (
    ENTITY,
    NODE,
    Group,
    GroupNodes,
    GroupSelector,
    Matches,
    Stranger,
    label_set,
)
from antrea.features.admission import Watched
from antrea.features.controller import ControllerFeature
from antrea.features.grouping.member import (
    ADDRESS,
    APPLIED,
    EGRESS,
    MEMBERS,
    entity_member,
    node_member,
    service_member,
)
from antrea.features.grouping.publication import (
    Candidate,
    Membership,
    Memberships,
    Processed,
)
from antrea.features.grouping.row import namespace_row, pod_row
from antrea.features.grouping.selector import looks, selects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.controlplane import GroupMember
    from antrea.engine import Facts

    Belongs = Membership | GroupNodes | Candidate | Stranger


def matches(facts: Facts, labels: str) -> Iterator[Matches]:
    """The selectors that mean whoever has these labels, and the groups made of them."""
    found, selectors = label_set(labels), dict[str, None]()
    home = facts.get(Namespace, found.namespace) if found.namespace else None
    for place in looks(found, home):
        for selector in facts.by(GroupSelector, "place", place):
            if selects(selector, found, home):
                selectors[selector.key] = None
    if not selectors:
        return
    groups = {group.key: group for key in selectors for group in facts.by(Group, "selector", key)}
    told: dict[str, list[str]] = {}
    for group in groups.values():
        if not group.home:
            told.setdefault(group.resource, []).append(group.name)
    names = tuple((resource, tuple(names)) for resource, names in told.items())
    yield Matches(labels, tuple(selectors), tuple(groups.values()), names)


def _groups(facts: Facts, labels: str) -> tuple[Group, ...]:
    found = facts.get(Matches, labels)
    return found.groups if found else ()


def memberships(facts: Facts, pod: Pod) -> Iterator[Memberships | Belongs]:
    """All groups that this Pod is in; policies follow the Nodes of those that they are for."""
    told, found = [], facts.get(Matches, pod.labels)
    for resource, names in found.told if found else ():
        if (member := MEMBERS[resource](pod)) is not None:
            told.append((resource, names, member))
            if resource == APPLIED:
                node = (pod.node,)
                yield from (GroupNodes(name, node) for name in names)
    if told:
        yield Memberships(pod.key, pod.node, tuple(told))
    for group in found.groups if found else ():
        if group.home and group.home != pod.namespace:
            yield Stranger(group.key)
        elif group.home and (member := MEMBERS[group.resource](pod)) is not None:
            yield from _belongs(group, pod.key, member, pod.node)


def entity_memberships(facts: Facts, entity: Entity) -> Iterator[Belongs]:
    """The same of an ExternalEntity; policies are for those that an agent is for."""
    for group in _groups(facts, entity.labels):
        if group.home and group.home != entity.namespace:
            yield Stranger(group.key)
        elif group.resource == ADDRESS or (group.resource == APPLIED and entity.node):
            member = entity_member(entity, addresses=group.resource == ADDRESS)
            yield from _belongs(group, f"{ENTITY} {entity.key}", member, entity.node)


def node_memberships(facts: Facts, node: ClusterNode) -> Iterator[Belongs]:
    """The same of a Node, which is also where policies for a Service are enforced."""
    for group in _groups(facts, node.labels):
        if group.resource != EGRESS:
            member = node_member(node, addresses=group.resource == ADDRESS)
            yield from _belongs(group, f"{NODE} {node.name}", member, node.name)
    for group in facts.by(Group, "everywhere", True):
        if group.service:
            yield from _belongs(group, f"{NODE} {node.name}", service_member(*group.service), node.name)


def _belongs(group: Group, who: str, member: GroupMember, node: str) -> Iterator[Belongs]:
    if group.home:
        yield Candidate((group.resource, group.name), who, member, node)
        return
    yield Membership(group.resource, group.name, who, member, node)
    if group.resource == APPLIED:
        yield GroupNodes(group.name, (node,))


def among_themselves(facts: Facts, found: Candidate) -> Iterator[Belongs]:
    """Nobody belongs to a group with a home that selects a stranger: policies for it are not realised."""
    resource, name = found.group
    if facts.get(Stranger, f"{resource}/{name}") is None:
        yield from _belongs(Group(resource, name, ()), found.who, found.member, found.node)


def processed(_: Facts, heard: NodeHeard) -> Iterator[Processed]:
    """After all that the Pods of that Node changed."""
    yield Processed(heard.node, heard.version)


FEATURE = ControllerFeature(
    name="Grouping",
    watched=(
        Watched("/api/v1/pods", core.Pod, Pod, pod_row),
        Watched("/api/v1/namespaces", core.Namespace, Namespace, namespace_row, guards="its Pods"),
    ),
    units=(
        Unit(Pod, matches, by="labels", yields=(Matches,)),
        Unit(Entity, matches, by="labels", yields=(Matches,)),
        Unit(ClusterNode, matches, by="labels", yields=(Matches,)),
        Unit(Pod, memberships, yields=(GroupNodes, Candidate, Stranger)),
        Unit(Entity, entity_memberships, yields=(GroupNodes, Candidate, Stranger)),
        Unit(ClusterNode, node_memberships, yields=(GroupNodes,)),
        Unit(Candidate, among_themselves, yields=(GroupNodes,)),
        Unit(NodeHeard, processed),
    ),
)
