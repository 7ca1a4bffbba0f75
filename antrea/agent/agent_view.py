"""What the agent shows of itself, through its own API and as its AntreaAgentInfo."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from antrea.agent.membership import Membership
from antrea.agent.starts import Starts
from antrea.apis.controlplane import AddressGroup, AppliedToGroup
from antrea.apis.crd.info import NetworkPolicyControllerInfo
from antrea.apis.meta import ObjectMetadata
from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect
from antrea.engine import Facts
from antrea.features.gate import EnabledGates
from antrea.features.network_policy.sent import (
    SentAddressGroup,
    SentAddressMember,
    SentAppliedGroup,
    SentAppliedMember,
    SentGroup,
    SentMember,
    SentPolicy,
)
from antrea.outside.flow_operations import FlowOperations
from antrea.outside.serving import Check

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from antrea.apis.agent_api import FqdnAnswer
    from antrea.apis.controlplane import GroupMember, NetworkPolicy


class Dumper(Protocol):
    """What outside.ofctl_run.Ofctl does for us."""

    def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        """Lines of a dump without its header. Raises Unavailable."""


class Received(NamedTuple):
    """Policies and groups that the controller sent for this Node, and addresses of names in their rules."""

    policies: tuple[NetworkPolicy, ...] = ()
    address_groups: tuple[AddressGroup, ...] = ()
    applied_to_groups: tuple[AppliedToGroup, ...] = ()
    fqdns: tuple[FqdnAnswer, ...] = ()


def received(facts: Facts) -> Received:
    """What has been heard of the controller so far."""
    return Received(
        policies=tuple(row.found for row in facts.all(SentPolicy)),
        address_groups=tuple(
            AddressGroup(metadata=ObjectMetadata(name=name, uid=name), group_members=members)
            for name, members in _groups(facts, SentAddressGroup, SentAddressMember)
        ),
        applied_to_groups=tuple(
            AppliedToGroup(metadata=ObjectMetadata(name=name, uid=name), group_members=members)
            for name, members in _groups(facts, SentAppliedGroup, SentAppliedMember)
        ),
    )


def counts(facts: Facts) -> NetworkPolicyControllerInfo:
    """How much has been heard of the controller so far."""
    return NetworkPolicyControllerInfo(
        network_policy_num=len(facts.all(SentPolicy)),
        address_group_num=len(facts.all(SentAddressGroup)),
        applied_to_group_num=len(facts.all(SentAppliedGroup)),
    )


def _groups(
    facts: Facts, head: type[SentGroup], member: type[SentMember]
) -> Iterator[tuple[str, tuple[GroupMember, ...]]]:
    for group in facts.all(head):
        yield group.name, tuple(row.member for row in facts.by(member, "group", group.name))


def _unknown() -> str:
    return ""


class AgentView(msgspec.Struct):
    """What is shown of the agent. `tables` maps a table's name to its number; checks say "" or why they fail.

    `conditions` are those of its health beside AgentHealthy, which is every check together.
    """

    in_effect: Callable[[], InEffect[AgentConfig, EnabledGates]]
    facts: Facts
    ofctl: Dumper
    tables: dict[str, int]
    ready: dict[str, Check] = {}
    live: dict[str, Check] = {}
    conditions: dict[str, Check] = {}
    ovs_version: Callable[[], str] = _unknown
    """Raises Unavailable."""
    received: Callable[[], Received] = Received
    membership: Membership | None = None
    """None: the gates leave it off."""
    starts: Starts = msgspec.field(default_factory=Starts)
    operations: FlowOperations = msgspec.field(default_factory=FlowOperations)
    packets: Callable[[], str] = _unknown
    """Metrics of what was dropped between switch and agent."""
    overflow: Callable[[], Awaitable[int]] | None = None
    """How many packets the switch dropped that the agent did not take in time. Raises Unavailable."""

    @property
    def now(self) -> InEffect[AgentConfig, EnabledGates]:
        """The configuration in effect."""
        return self.in_effect()

    @property
    def config(self) -> AgentConfig:
        """What the agent runs with."""
        return self.now.config


class NotFound(Exception):
    """There is nothing of that name."""
