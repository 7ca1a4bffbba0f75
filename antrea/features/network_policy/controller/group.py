"""Groups and ClusterGroups: what they select, together with their children.

parity: pkg/controller/networkpolicy/{group,clustergroup}.go, getInternalGroupMembers, processInternalGroupForRule
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from antrea.apis.controlplane import IPBlock
from antrea.apis.crd.group import ClusterGroup, Group, GroupSpec
from antrea.apis.crd.part import LabelSelector
from antrea.engine import Unit
from antrea.facts.cluster import ClusterService
from antrea.facts.fact import Fact
from antrea.facts.group import NODE, UNPUBLISHED, GroupSelector, PublishedGroup
from antrea.features.framework.admission import Watched
from antrea.features.grouping.member import APPLIED, PORTS
from antrea.features.grouping.publication import GroupHead, head
from antrea.features.grouping.selector import group_selector, requirements, selector_of
from antrea.features.network_policy.controller.peer import blocks
from antrea.features.network_policy.tier import CRD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from antrea.engine import Facts


class GroupObject(Fact, frozen=True):
    """Group; its feed writes it."""

    namespace: str
    name: str
    uid: str
    spec: GroupSpec

    @property
    def key(self) -> str:
        return group_key(self.namespace, self.name)


class ClusterGroupObject(GroupObject, frozen=True):
    """ClusterGroup, whose Namespace is empty: it has another feed, so another kind."""


class SourceGroup(Fact, frozen=True):
    """Group or ClusterGroup without its children's content; derived."""

    namespace: str
    name: str
    uid: str
    selector: GroupSelector | None = None
    blocks: tuple[IPBlock, ...] = ()
    children: tuple[str, ...] = ()
    """Keys of the children."""

    @property
    def key(self) -> str:
        return group_key(self.namespace, self.name)


class WholeGroup(Fact, frozen=True):
    """Group or ClusterGroup with everything from its children; derived."""

    namespace: str
    name: str
    uid: str
    selectors: tuple[GroupSelector, ...] = ()
    blocks: tuple[IPBlock, ...] = ()
    selects: bool = False
    """Whether it, or one of its children, is more than a list of blocks: as a peer it needs an AddressGroup."""
    parent: bool = False
    nested: bool = False
    """Whether a child has children, so that it has no members."""
    computed: bool = True
    """Whether all children exist."""
    indexes: ClassVar[Mapping[str, Callable[[WholeGroup], Iterable[Hashable]]]] = {
        "selector": lambda row: (selector.key for selector in row.selectors)
    }

    @property
    def key(self) -> str:
        return group_key(self.namespace, self.name)

    @property
    def applies(self) -> bool:
        """Whether policies can be for it: a list of blocks has no members that they could be for."""
        return self.parent or not self.blocks

    def applied(self) -> tuple[GroupSelector, ...]:
        """Return the selectors of policies' targets: Nodes that children select are not among them."""
        return tuple(selector for selector in self.selectors if not (self.parent and selector.kind == NODE))


class GroupUse(Fact, frozen=True):
    """Use of a Group or ClusterGroup by a policy, as a peer or as a target; derived."""

    resource: str
    group: str
    """Key of the `WholeGroup`."""

    @property
    def key(self) -> str:
        return f"{self.resource}/{self.group}"


def group_key(namespace: str, name: str) -> str:
    """Return the key under which a Group, or a ClusterGroup if there is no Namespace, is stored and sent to agents."""
    return f"{namespace}/{name}" if namespace else name


def source_group(facts: Facts, stored: GroupObject) -> Iterator[SourceGroup | GroupSelector]:
    """Yield the group by the first of its ways to choose members."""
    spec, namespace = stored.spec, stored.namespace
    if spec.child_groups:
        children = tuple(group_key(namespace, child) for child in spec.child_groups)
        yield SourceGroup(namespace, stored.name, stored.uid, children=children)
        return
    if spec.ip_blocks:
        yield SourceGroup(namespace, stored.name, stored.uid, blocks=blocks(spec.ip_blocks))
        return
    selector = _selector(facts, stored)
    if selector is not None:
        yield selector.with_parts((UNPUBLISHED,))
    yield SourceGroup(namespace, stored.name, stored.uid, selector)


def _selector(facts: Facts, stored: GroupObject) -> GroupSelector | None:
    spec = stored.spec
    if (wanted := spec.service_reference) is not None:
        service = facts.get(ClusterService, f"{wanted.namespace or stored.namespace}/{wanted.name}")
        if service is None or not service.selector:
            return None
        chosen = LabelSelector(match_labels=dict(service.selector))
        return selector_of(service.namespace, None, requirements(chosen))
    return group_selector(
        stored.namespace,
        spec.pod_selector,
        spec.namespace_selector,
        entities=spec.external_entity_selector,
        nodes=None if stored.namespace else spec.node_selector,
    )


def whole_group(facts: Facts, source: SourceGroup) -> Iterator[WholeGroup]:
    """Yield a group; one with children is the union of these, which have none of their own."""
    name = (source.namespace, source.name, source.uid)
    if not source.children:
        selectors = (source.selector,) if source.selector else ()
        yield WholeGroup(*name, selectors, source.blocks, selects=not source.blocks)
        return
    known = [facts.get(SourceGroup, key) for key in dict.fromkeys(source.children)]
    children = [child for child in known if child is not None]
    if any(child.children for child in children):
        yield WholeGroup(*name, parent=True, nested=True, computed=False)
        return
    yield WholeGroup(
        *name,
        tuple(dict.fromkeys(child.selector for child in children if child.selector)),
        tuple(block for child in children for block in child.blocks),
        selects=any(not child.blocks for child in children),
        parent=True,
        computed=len(children) == len(known),
    )


def published_group(facts: Facts, use: GroupUse) -> Iterator[GroupSelector | GroupHead]:
    """Yield the group's selectors, published under its own name."""
    whole = facts.get(WholeGroup, use.group)
    if whole is None:
        return
    home, selectors = "", whole.selectors
    if use.resource == APPLIED:
        selectors = whole.applied()
        if any(selector.namespace != whole.namespace for selector in selectors):
            home = whole.namespace
    group = PublishedGroup(use.resource, use.group, whole.uid, home)
    for published in selectors:
        yield published.with_parts((group,))
    if use.resource != PORTS:
        yield head(group)


def _row(kind: type[GroupObject]) -> Callable[[Any], GroupObject]:
    def row(stored: Any) -> GroupObject:
        meta = stored.metadata
        return kind(meta.namespace, meta.name, meta.uid, stored.spec)

    return row


cluster_group_row, group_row = _row(ClusterGroupObject), _row(GroupObject)
WATCHED = (
    Watched(f"{CRD}/clustergroups", ClusterGroup, ClusterGroupObject, cluster_group_row, guards="all"),
    Watched(f"{CRD}/groups", Group, GroupObject, group_row, guards="its own"),
)
UNITS = (
    Unit(ClusterGroupObject, source_group, yields=(SourceGroup, GroupSelector)),
    Unit(GroupObject, source_group, yields=(SourceGroup, GroupSelector)),
    Unit(SourceGroup, whole_group, yields=(WholeGroup,)),
    Unit(GroupUse, published_group, yields=(GroupSelector,)),
)
