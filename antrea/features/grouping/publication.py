"""Entries that are sent to agents: a group, and each of its members by itself, so that a change of one Pod sends one member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from antrea.apis.controlplane import GroupMember, NetworkPolicy
from antrea.facts.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.facts.group import PublishedGroup

PUBLISHED = 0
"""Category of all entries that are sent to agents: a Pod is sent with all its groups, whatever their kinds."""


POLICIES = "networkpolicies"
"""Plural of the kind in which policies are sent."""


class GroupEntry(msgspec.Struct, frozen=True):
    """Entry about the group `name`, whose kind has the plural `resource`."""

    resource: str
    name: str

    @property
    def group(self) -> tuple[str, str]:
        return (self.resource, self.name)

    category: ClassVar[int] = PUBLISHED

    @property
    def key(self) -> tuple[str, ...]:
        return self.group


class GroupHead(GroupEntry, frozen=True):
    """Existence of a group; those of NetworkPolicies of Kubernetes exist as long as a `PublishedPolicy` names them, without
    this.
    """

    rank: ClassVar[int] = 10

    uid: str


def head(group: PublishedGroup) -> GroupHead:
    """Make the entry by which a group is sent also while it has no members; what refers to it yields this, too."""
    return GroupHead(group.resource, group.name, group.uid)


class GroupSpan(GroupEntry, frozen=True):
    """Nodes that need a group whose members may be anywhere; the Nodes of several policies are united."""

    rank: ClassVar[int] = 15

    parts: tuple[str, ...]

    def with_parts(self, parts: tuple[str, ...]) -> GroupSpan:
        """Return the entry for these Nodes."""
        return GroupSpan(self.resource, self.name, parts)


class Membership(GroupEntry, frozen=True):
    """Membership in a group; `who` identifies the member, `node` is its Node ("" if none)."""

    rank: ClassVar[int] = 20

    who: str
    member: GroupMember
    node: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        return (*self.group, self.who)


class Memberships(msgspec.Struct, frozen=True):
    """All groups of a Pod at once: equal to as many `Membership`s, at the cost of one entry."""

    rank: ClassVar[int] = 20
    category: ClassVar[int] = PUBLISHED

    who: str
    node: str
    names: tuple[tuple[str, tuple[str, ...]], ...]
    """Names of groups by the plural of their kind: one tuple for all Pods with the same labels."""
    members: tuple[GroupMember | None, ...]
    """The Pod's member in each kind; None if it does not count there."""

    @property
    def key(self) -> str:
        return self.who

    def each(self) -> Iterator[Membership]:
        """Yield single memberships."""
        for (resource, names), member in zip(self.names, self.members, strict=True):
            if member is not None:
                for name in names:
                    yield Membership(resource, name, self.who, member, self.node)


class MembershipCandidate(Fact, frozen=True):
    """`Membership` of a group with a home, unless there is a `ForeignMember`; derived."""

    group: tuple[str, str]
    """Plural of the group's kind, and its name."""
    who: str
    member: GroupMember
    node: str

    @property
    def key(self) -> str:
        return f"{'/'.join(self.group)} {self.who}"


class PublishedPolicy(msgspec.Struct, frozen=True):
    """Policy, and the Nodes that enforce it; sent after the groups that it names."""

    rank: ClassVar[int] = 30
    category: ClassVar[int] = PUBLISHED

    policy: NetworkPolicy
    nodes: tuple[str, ...]

    def __hash__(self) -> int:
        # its metadata has mappings
        return hash(self.key)

    @property
    def key(self) -> str:
        return self.policy.metadata.name


class PublishedObject(msgspec.Struct, frozen=True):
    """Object of any kind without members, and the Nodes that it is for; its feature lists the kind in `publishes`."""

    rank: ClassVar[int] = 30
    category: ClassVar[int] = PUBLISHED

    resource: str
    """Plural of its kind."""
    name: str
    content: Any
    """Struct of antrea.apis.controlplane."""
    nodes: tuple[str, ...]

    def __hash__(self) -> int:
        # as that of PublishedPolicy
        return hash(self.key)

    @property
    def key(self) -> tuple[str, str]:
        return (self.resource, self.name)


class ProcessedPods(msgspec.Struct, frozen=True):
    """Progress mark: everything that agents need about a Node's Pods at this resourceVersion has been sent before."""

    rank: ClassVar[int] = 40
    category: ClassVar[int] = PUBLISHED

    node: str
    version: int

    @property
    def key(self) -> str:
        return self.node


ENTRIES = (GroupHead, GroupSpan, Membership, Memberships, PublishedPolicy, PublishedObject, ProcessedPods)
"""All classes of entries."""
