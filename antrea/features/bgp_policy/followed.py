"""The BGPPolicy that each Node follows, as the controller sees it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from antrea.facts.fact import Fact, precedence
from antrea.features.bgp_policy.policy import BgpPolicyRow
from antrea.features.grouping.selector import meets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.apis.core import Node
    from antrea.engine import Facts


class NodeLabels(Fact, frozen=True):
    """Labels of a Node; the feed of Nodes writes it."""

    node: str
    labels: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        return self.node


class FollowedPolicy(Fact, frozen=True):
    """The BGPPolicy that a Node follows; derived."""

    node: str
    policy: str
    selected_by: tuple[str, ...]
    """All that select the Node."""

    indexes: ClassVar[Mapping[str, Callable[[FollowedPolicy], Iterable[Hashable]]]] = {
        "selected_by": lambda row: row.selected_by
    }

    @property
    def key(self) -> str:
        return self.node


def node_labels(node: Node) -> NodeLabels:
    """Make the row of a Node."""
    return NodeLabels(node.metadata.name, tuple(sorted(node.metadata.labels.items())))


def followed_policy(facts: Facts, node: NodeLabels) -> Iterator[FollowedPolicy]:
    """Yield the oldest policy that selects a Node, as its agent chooses it."""
    labels = dict(node.labels)
    policies = [row for row in facts.all(BgpPolicyRow) if meets(labels, row.nodes)]
    if policies:
        policies.sort(key=lambda row: precedence(row.created, row.name))
        names = tuple(row.name for row in policies)
        yield FollowedPolicy(node.node, names[0], names)
