"""Policies for this Node itself: their rules are nftables of the Node, not flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.facts.fact import Fact
from antrea.facts.node import ThisNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.apis.controlplane import NetworkPolicy
    from antrea.engine import Facts
    from antrea.features.network_policy.agent.received import SentAppliedMember

GATE = "NodeNetworkPolicy"
GATE_OFF = f"the feature gate {GATE} is off in antrea-agent.conf of this Node"


class NodeTarget(Fact, frozen=True):
    """AppliedToGroup that this Node is a member of; derived."""

    group: str

    @property
    def key(self) -> str:
        return self.group


def node_target(facts: Facts, row: SentAppliedMember) -> Iterator[NodeTarget]:
    """Yield the group of a member that is this Node."""
    node = facts.get(ThisNode)
    if node is not None and row.member.node is not None and row.member.node.name == node.name:
        yield NodeTarget(row.group)


def groups_of_node(facts: Facts, groups: Iterable[str]) -> list[str]:
    """Return those AppliedToGroups that this Node is a member of."""
    return [group for group in groups if facts.get(NodeTarget, group) is not None]


def is_for_node(facts: Facts, policy: NetworkPolicy) -> bool:
    """Whether the policy, or one of its rules, is for this Node itself."""
    groups = (policy.applied_to_groups, *(rule.applied_to_groups for rule in policy.rules))
    return any(groups_of_node(facts, applied) for applied in groups)
