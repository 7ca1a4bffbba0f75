"""What is sent to agents, as entries: a group, and each of its members by itself, so that one Pod costs one member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from antrea.apis.controlplane import GroupMember, NetworkPolicy
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.facts.group import PublishedGroup

TOLD = 0
"""The one category of what is sent to agents: a Pod is sent with all its groups, whatever their kinds."""


POLICIES = "networkpolicies"
"""Plural of what policies are sent as."""


class OfGroup(msgspec.Struct, frozen=True):
    """Something about the group `name`, whose kind has the plural `resource`."""

    resource: str
    name: str

    @property
    def group(self) -> tuple[str, str]:
        return (self.resource, self.name)

    category: ClassVar[int] = TOLD

    @property
    def key(self) -> tuple[str, ...]:
        return self.group


class GroupHead(OfGroup, frozen=True):
    """A group exists; those of NetworkPolicies of Kubernetes do as long as a `PublishedPolicy` names them, without this."""

    rank: ClassVar[int] = 10

    uid: str


def head(group: PublishedGroup) -> GroupHead:
    """A group is sent to agents also while it has no members; what refers to it yields this, too."""
    return GroupHead(group.resource, group.name, group.uid)


class GroupSpan(OfGroup, frozen=True):
    """Nodes that need a group whose members may be anywhere; the Nodes of several policies are united."""

    rank: ClassVar[int] = 15

    parts: tuple[str, ...]

    def with_parts(self, parts: tuple[str, ...]) -> GroupSpan:
        """The same for these Nodes."""
        return GroupSpan(self.resource, self.name, parts)


class Membership(OfGroup, frozen=True):
    """Something belongs to a group; `who` identifies it among the members, `node` is where it is ("": nowhere)."""

    rank: ClassVar[int] = 20

    who: str
    member: GroupMember
    node: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        return (*self.group, self.who)


class Memberships(msgspec.Struct, frozen=True):
    """All groups that a Pod is in, at once: as many `Membership`s, at the price of one entry."""

    rank: ClassVar[int] = 20
    category: ClassVar[int] = TOLD

    who: str
    node: str
    told: tuple[tuple[str, tuple[str, ...]], ...]
    """By the plural of their kind the names of groups: one tuple for all Pods with the same labels."""
    members: tuple[GroupMember | None, ...]
    """The Pod's member in each kind; None: it does not count there."""

    @property
    def key(self) -> str:
        return self.who

    def each(self) -> Iterator[Membership]:
        """One by one."""
        for (resource, names), member in zip(self.told, self.members, strict=True):
            if member is not None:
                for name in names:
                    yield Membership(resource, name, self.who, member, self.node)


class MembershipCandidate(Fact, frozen=True):
    """A `Membership` of a group with a home, unless there is a `Stranger`; derived."""

    group: tuple[str, str]
    """Plural of its kind, name."""
    who: str
    member: GroupMember
    node: str

    @property
    def key(self) -> str:
        return f"{'/'.join(self.group)} {self.who}"


class PublishedPolicy(msgspec.Struct, frozen=True):
    """A policy, and the Nodes that enforce it; sent after the groups that it names."""

    rank: ClassVar[int] = 30
    category: ClassVar[int] = TOLD

    found: NetworkPolicy
    nodes: tuple[str, ...]

    def __hash__(self) -> int:
        # its metadata has mappings
        return hash(self.key)

    @property
    def key(self) -> str:
        return self.found.metadata.name


class PublishedObject(msgspec.Struct, frozen=True):
    """An object of any kind without members, and the Nodes that it is for; its feature lists the kind in `publishes`."""

    rank: ClassVar[int] = 30
    category: ClassVar[int] = TOLD

    resource: str
    """Plural of its kind."""
    name: str
    found: Any
    """A struct of antrea.apis.controlplane."""
    nodes: tuple[str, ...]

    def __hash__(self) -> int:
        # as that of PublishedPolicy
        return hash(self.key)

    @property
    def key(self) -> tuple[str, str]:
        return (self.resource, self.name)


class ProcessedPods(msgspec.Struct, frozen=True):
    """All that agents need about a Node's Pods, as they were at this resourceVersion, has been sent before this."""

    rank: ClassVar[int] = 40
    category: ClassVar[int] = TOLD

    node: str
    version: int

    @property
    def key(self) -> str:
        return self.node


ENTRIES = (GroupHead, GroupSpan, Membership, Memberships, PublishedPolicy, PublishedObject, ProcessedPods)
"""All classes of them."""
