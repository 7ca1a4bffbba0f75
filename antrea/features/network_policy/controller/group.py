"""Groups and ClusterGroups: what they select, with what their children do.

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
    """A Group as its feed found it."""

    namespace: str
    name: str
    uid: str
    spec: GroupSpec

    @property
    def key(self) -> str:
        return group_key(self.namespace, self.name)


class ClusterGroupObject(GroupObject, frozen=True):
    """A ClusterGroup, whose Namespace is empty: another feed, so another kind."""


class SourceGroup(Fact, frozen=True):
    """A Group or ClusterGroup by itself; derived."""

    namespace: str
    name: str
    uid: str
    selector: GroupSelector | None = None
    blocks: tuple[IPBlock, ...] = ()
    children: tuple[str, ...] = ()
    """Keys."""

    @property
    def key(self) -> str:
        return group_key(self.namespace, self.name)


class WholeGroup(Fact, frozen=True):
    """A Group or ClusterGroup with all that its children bring; derived."""

    namespace: str
    name: str
    uid: str
    selectors: tuple[GroupSelector, ...] = ()
    blocks: tuple[IPBlock, ...] = ()
    selects: bool = False
    """It, or one of its children, is no list of blocks: as a peer it needs an AddressGroup."""
    parent: bool = False
    nested: bool = False
    """A child has children: it has no members."""
    computed: bool = True
    """All children are there."""
    indexes: ClassVar[Mapping[str, Callable[[WholeGroup], Iterable[Hashable]]]] = {
        "selector": lambda row: (one.key for one in row.selectors)
    }

    @property
    def key(self) -> str:
        return group_key(self.namespace, self.name)

    @property
    def applies(self) -> bool:
        """Policies can be for it: a list of blocks has no members that they could be for."""
        return self.parent or not self.blocks

    def applied(self) -> tuple[GroupSelector, ...]:
        """Whom policies are for: not for Nodes that children select."""
        return tuple(one for one in self.selectors if not (self.parent and one.kind == NODE))


class GroupUse(Fact, frozen=True):
    """A policy names this Group or ClusterGroup, as a peer or as what it is for; derived."""

    resource: str
    group: str
    """Key of the `WholeGroup`."""

    @property
    def key(self) -> str:
        return f"{self.resource}/{self.group}"


def group_key(namespace: str, name: str) -> str:
    """Under which a Group, or a ClusterGroup if there is no Namespace, is stored and sent to agents."""
    return f"{namespace}/{name}" if namespace else name


def source_group(facts: Facts, found: GroupObject) -> Iterator[SourceGroup | GroupSelector]:
    """The first of the ways to choose members that it has counts."""
    spec, own = found.spec, found.namespace
    if spec.child_groups:
        children = tuple(group_key(own, child) for child in spec.child_groups)
        yield SourceGroup(own, found.name, found.uid, children=children)
        return
    if spec.ip_blocks:
        yield SourceGroup(own, found.name, found.uid, blocks=blocks(spec.ip_blocks))
        return
    selector = _selector(facts, found)
    if selector is not None:
        yield selector.with_parts((UNPUBLISHED,))
    yield SourceGroup(own, found.name, found.uid, selector)


def _selector(facts: Facts, found: GroupObject) -> GroupSelector | None:
    spec = found.spec
    if (wanted := spec.service_reference) is not None:
        service = facts.get(ClusterService, f"{wanted.namespace or found.namespace}/{wanted.name}")
        if service is None or not service.selector:
            return None
        chosen = LabelSelector(match_labels=dict(service.selector))
        return selector_of(service.namespace, None, requirements(chosen))
    return group_selector(
        found.namespace,
        spec.pod_selector,
        spec.namespace_selector,
        entities=spec.external_entity_selector,
        nodes=None if found.namespace else spec.node_selector,
    )


def whole_group(facts: Facts, found: SourceGroup) -> Iterator[WholeGroup]:
    """A group of groups is the union of its children, which have none of their own."""
    name = (found.namespace, found.name, found.uid)
    if not found.children:
        selectors = (found.selector,) if found.selector else ()
        yield WholeGroup(*name, selectors, found.blocks, selects=not found.blocks)
        return
    known = [facts.get(SourceGroup, key) for key in dict.fromkeys(found.children)]
    children = [child for child in known if child is not None]
    if any(child.children for child in children):
        yield WholeGroup(*name, parent=True, nested=True, computed=False)
        return
    yield WholeGroup(
        *name,
        tuple(dict.fromkeys(child.selector for child in children if child.selector)),
        tuple(one for child in children for one in child.blocks),
        selects=any(not child.blocks for child in children),
        parent=True,
        computed=len(children) == len(known),
    )


def published_group(facts: Facts, use: GroupUse) -> Iterator[GroupSelector | GroupHead]:
    """Named after the group, whatever it selects."""
    found = facts.get(WholeGroup, use.group)
    if found is None:
        return
    home, selectors = "", found.selectors
    if use.resource == APPLIED:
        selectors = found.applied()
        if any(one.namespace != found.namespace for one in selectors):
            home = found.namespace
    group = PublishedGroup(use.resource, use.group, found.uid, home)
    for one in selectors:
        yield one.with_parts((group,))
    if use.resource != PORTS:
        yield head(group)


def _row(kind: type[GroupObject]) -> Callable[[Any], GroupObject]:
    def row(found: Any) -> GroupObject:
        meta = found.metadata
        return kind(meta.namespace, meta.name, meta.uid, found.spec)

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
