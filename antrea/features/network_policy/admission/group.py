"""Validation of a ClusterGroup or Group: one way to choose members, and children that have no children.

parity: pkg/controller/networkpolicy/validate.go groupValidator
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from antrea.apis.crd.group import ClusterGroup, Group
from antrea.errors import Invalid
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched
from antrea.features.framework.selector_warning import selector_doubts
from antrea.features.network_policy.admission.peer import check_block, check_labels, fields_set, interface
from antrea.features.network_policy.tier import CRD

if TYPE_CHECKING:
    from typing import Any

    from antrea.apis.crd.group import GroupSpec
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps


class ClusterGroupChildren(Fact, frozen=True):
    """ClusterGroup by its children."""

    namespace: str
    name: str
    children: tuple[str, ...]
    indexes: ClassVar[Mapping[str, Callable[[ClusterGroupChildren], Iterable[Hashable]]]] = {
        "child": lambda row: ((row.namespace, child) for child in row.children)
    }

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class NamespacedGroupChildren(ClusterGroupChildren, frozen=True):
    """Group by its children: it has another feed, so another kind."""


def validate_cluster_group(facts: Facts, review: Review[ClusterGroup]) -> Steps:
    """Validate a ClusterGroup. Raises Invalid."""
    ways = "podSelector, nodeSelector, externalEntitySelector, serviceReference, ipBlock, ipBlocks or childGroups"
    _check_spec(review.new.spec, f"At most one of {ways} can be set for a ClusterGroup")
    _check_children(facts, ClusterGroupChildren, review.new)
    yield from selector_doubts(review.new.spec)


def validate_group(facts: Facts, review: Review[Group]) -> Steps:
    """Validate a Group. Raises Invalid."""
    ways = "podSelector, externalEntitySelector, serviceReference, ipBlocks or childGroups"
    _check_spec(review.new.spec, f"At most one of {ways} can be set for a Group")
    _check_children(facts, NamespacedGroupChildren, review.new)
    yield from selector_doubts(review.new.spec)


def _check_spec(spec: GroupSpec, several: str) -> None:
    number = fields_set(spec)
    paired = spec.namespace_selector is not None and (
        spec.pod_selector is not None or spec.external_entity_selector is not None
    )
    if number > 2 or (number == 2 and not paired):
        raise Invalid("spec", several)
    check_labels(
        {
            "spec.podSelector": spec.pod_selector,
            "spec.namespaceSelector": spec.namespace_selector,
            "spec.externalEntitySelector": spec.external_entity_selector,
        }
    )
    multicast = set()
    for index, block in enumerate(spec.ip_blocks):
        path = f"spec.ipBlocks[{index}]"
        check_block(block, path)
        multicast.add(interface(block.cidr, path).ip.is_multicast)
    if len(multicast) > 1:
        raise Invalid("spec.ipBlocks", "can not set multicast groupAddress together with unicast ip address")


def _check_children(facts: Facts, kind: type[ClusterGroupChildren], group: ClusterGroup | Group) -> None:
    namespace, name = group.metadata.namespace, group.metadata.name
    noun = "Group" if namespace else "ClusterGroup"

    def called(group_name: str) -> str:
        return f"{namespace}/{group_name}" if namespace else group_name

    if not group.spec.child_groups:
        return
    path = "spec.childGroups"
    if name in group.spec.child_groups:
        where = f"{path}[{group.spec.child_groups.index(name)}]"
        raise Invalid(where, f"cannot set {noun} {called(name)} as its own childGroup")
    if parents := facts.by(kind, "child", (namespace, name)):
        raise Invalid(
            path, f"cannot set childGroups for {noun} {called(name)}, who has {len(parents)} parents"
        )
    for index, child in enumerate(group.spec.child_groups):
        row = facts.get(kind, f"{namespace}/{child}")
        if row and row.children:
            raise Invalid(
                f"{path}[{index}]",
                f"cannot set {noun} {called(child)} as childGroup, who has {len(row.children)} childGroups itself",
            )


def _row(kind: type[ClusterGroupChildren]) -> Callable[[Any], ClusterGroupChildren]:
    return lambda group: kind(group.metadata.namespace, group.metadata.name, group.spec.child_groups)


WATCHED = (
    Watched(f"{CRD}/clustergroups", ClusterGroup, ClusterGroupChildren, _row(ClusterGroupChildren)),
    Watched(f"{CRD}/groups", Group, NamespacedGroupChildren, _row(NamespacedGroupChildren)),
)
