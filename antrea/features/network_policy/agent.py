"""Policies in the agent: what the controller says that concerns this Node.

parity: pkg/agent/controller/networkpolicy/networkpolicy_controller.go (its watches)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis import controlplane as cp
from antrea.facts.fact import Fact
from antrea.features.controlplane import GroupKind, ObjectKind
from antrea.features.feature import AgentFeature, Families

if TYPE_CHECKING:
    from antrea.config.agent import AgentConfig
    from antrea.openflow.table import Table


class SentPolicy(Fact, frozen=True):
    """A policy for Pods of this Node."""

    found: cp.NetworkPolicy

    @property
    def key(self) -> str:
        return self.found.metadata.name


class SentGroup(Fact, frozen=True):
    """A group that is known here, whether it has members or not."""

    name: str

    @property
    def key(self) -> str:
        return self.name


class SentMember(Fact, frozen=True):
    """A member of a group; two that differ in anything are two."""

    group: str
    member: cp.GroupMember
    indexes = {"group": lambda row: (row.group,)}  # noqa: RUF012

    @property
    def key(self) -> str:
        return f"{self.group} {self.member}"


class SentAddressGroup(SentGroup, frozen=True):
    """Peers of rules."""


class SentAddressMember(SentMember, frozen=True):
    """A peer of rules."""


class SentAppliedGroup(SentGroup, frozen=True):
    """Whom policies are for."""


class SentAppliedMember(SentMember, frozen=True):
    """A Pod of this Node that policies are for."""


def tables(config: AgentConfig, families: Families) -> tuple[Table, ...]:
    """None as long as nothing is enforced."""
    return ()


FEATURE = AgentFeature(
    name="NetworkPolicy",
    tables=tables,
    watches=(
        ObjectKind("networkpolicies", SentPolicy, cp.NetworkPolicy, SentPolicy),
        GroupKind("addressgroups", SentAddressMember, SentAddressMember, SentAddressGroup),
        GroupKind("appliedtogroups", SentAppliedMember, SentAppliedMember, SentAppliedGroup),
    ),
)
