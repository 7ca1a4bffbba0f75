"""The sink that tells agents: groups and their members go into the stores of the front, each change by itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.controlplane import GROUP, GroupMember
from antrea.apis.meta import ObjectMetadata
from antrea.controller.stores import ROWS
from antrea.features.grouping.publication import (
    GroupHead,
    GroupSpan,
    Membership,
    Memberships,
    Processed,
    PublishedPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from antrea.controller.front_process import Publisher
    from antrea.features.grouping.publication import OfGroup

BY_POLICY, POLICIES = "addressgroups", "networkpolicies"
Name = tuple[str, str]
"""A group: plural of its kind, name."""
Placed = tuple[GroupMember, str]
"""A member and the Node that it is on, "" for none."""
Left = Callable[[str, Iterable[str]], None]
"""Told that a policy, by its UID, is no longer for these Nodes; of those that agents report on."""


class _Told:
    """What agents know of one group."""

    def __init__(self) -> None:
        self.head: GroupHead | None = None
        self.members: dict[str, Placed] = {}
        self.nodes: Counter[str] = Counter()
        """How many members are on each Node."""
        self.wanted: tuple[str, ...] = ()
        """Nodes that need it for their policies, wherever its members are."""

    def enter(self, who: str, placed: Placed) -> Placed | None:
        """The member that was there before."""
        before = self.leave(who)
        self.members[who] = placed
        self.nodes[placed[1]] += 1
        return before

    def leave(self, who: str) -> Placed | None:
        """The member that has gone, if it was there."""
        before = self.members.pop(who, None)
        if before is not None:
            self.nodes[before[1]] -= 1
            if not self.nodes[before[1]]:
                del self.nodes[before[1]]
        return before

    def span(self, resource: str) -> tuple[str, ...]:
        """Nodes that need the group: those of its policies, or those that its members are on."""
        return self.wanted if resource == BY_POLICY else tuple(node for node in self.nodes if node)


class _Delta(msgspec.Struct):
    """What one batch does to one group."""

    added: list[Placed] = []
    removed: list[Placed] = []
    anew: bool = False
    """Its head is new: it is told whole."""
    moved: bool = False
    """Other Nodes need it now."""


class PublishSink:
    """Takes GroupHead, GroupSpan, Membership, Memberships, PublishedPolicy and Processed."""

    def __init__(self, publisher: Publisher, left: Left, plurals: Collection[str]) -> None:
        """`plurals`: the kinds that are told; nobody hears of others."""
        self._publisher = publisher
        self._left = left
        self._plurals = plurals
        self._pods: dict[str, Memberships] = {}
        """What was last said of each Pod."""
        self._told: dict[Name, _Told] = {}
        self._policies: dict[str, tuple[str, ...]] = {}
        """Nodes by UID; none where agents report nothing."""
        self.processed: Counter[str] = Counter()
        """How often one of each kind, by its plural, was told or withdrawn since this process started."""

    def counts(self) -> Counter[str]:
        """How many there are of each kind, by its plural."""
        groups = Counter(resource for resource, _ in self._told)
        return groups + Counter({POLICIES: len(self._policies)})

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        """Never refuses; the front takes all that was said, or has ended."""
        deltas: dict[Name, _Delta] = defaultdict(_Delta)
        marks = [entry for entry in put if isinstance(entry, Processed)]
        (policies, put_groups), (withdrawn, dropped) = _apart(put), _apart(drop)
        for entry in put_groups:
            self._put(entry, deltas)
        gone = self._dropped(dropped, deltas)
        self.processed[POLICIES] += len(policies) + len(withdrawn)
        self.processed.update(resource for resource, _ in {*deltas, *gone})
        for policy in withdrawn:
            self._left(policy.key, self._policies.pop(policy.key, ()))
            self._publisher.drop(GROUP, POLICIES, policy.key)
        for name, delta in deltas.items():
            self._tell(name, delta)
        for policy in policies:
            nodes = () if policy.found.priority is None else policy.nodes
            before = self._policies.get(policy.key, ())
            self._left(policy.key, [] if before == nodes else sorted({*before} - {*nodes}))
            self._policies[policy.key] = nodes
            self._publisher.put(GROUP, POLICIES, policy.key, policy.found, span=policy.nodes)
        for name in gone:
            del self._told[name]
            self._publisher.drop(GROUP, *name)
        for mark in marks:
            self._publisher.processed(mark.node, mark.version)
        await self._publisher.drained()

    async def resync(self, entries: Sequence[Any]) -> None:
        """All groups anew: the stores of the front are empty when this process starts."""
        self._told.clear()
        self._pods.clear()
        self._policies.clear()
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """All has been told: watches may begin."""
        for plural in sorted(self._plurals):
            self._publisher.synced(GROUP, plural)

    def _put(self, entry: OfGroup | Memberships, deltas: dict[Name, _Delta]) -> None:
        if isinstance(entry, Memberships):
            self._put_pod(entry, deltas)
            return
        name = entry.group
        if isinstance(entry, GroupHead):
            self._told.setdefault(name, _Told()).head = entry
            deltas[name].anew = True
        elif isinstance(entry, GroupSpan):
            self._told.setdefault(name, _Told()).wanted = entry.parts
            deltas[name].moved = True
        elif isinstance(entry, Membership):
            placed = (entry.member, entry.node)
            before = self._told.setdefault(name, _Told()).enter(entry.who, placed)
            if before != placed:
                deltas[name].added.append(placed)
                deltas[name].removed += [before] if before else []

    def _put_pod(self, entry: Memberships, deltas: dict[Name, _Delta]) -> None:
        """It leaves the groups that it is no longer in."""
        before, self._pods[entry.who] = self._pods.get(entry.who), entry
        now = {one.group: one for one in entry.each()}
        for one in before.each() if before else ():
            if one.group not in now:
                self._leave(one, deltas)
        for one in now.values():
            self._put(one, deltas)

    def _leave(self, one: Membership, deltas: dict[Name, _Delta]) -> None:
        told = self._told.get(one.group)
        before = told.leave(one.who) if told else None
        if before is not None:
            deltas[one.group].removed.append(before)

    def _dropped(self, drop: Iterable[OfGroup | Memberships], deltas: dict[Name, _Delta]) -> list[Name]:
        gone = []
        for entry in drop:
            if isinstance(entry, Memberships):
                for one in entry.each():
                    self._leave(one, deltas)
                self._pods.pop(entry.who, None)
            elif isinstance(entry, Membership):
                self._leave(entry, deltas)
            elif (told := self._told.get(entry.group)) is None:
                continue
            elif isinstance(entry, GroupHead):
                gone.append(entry.group)
            else:
                told.wanted, deltas[entry.group].moved = (), True
        return gone

    def _tell(self, name: Name, delta: _Delta) -> None:
        told, (resource, group) = self._told[name], name
        if told.head is None:
            return  # told with its head
        if delta.anew:
            members = [*told.members.values()]
            found = ROWS[GROUP, resource].struct(
                metadata=ObjectMetadata(name=group, uid=told.head.uid),
                group_members=tuple(member for member, _ in members),
            )
            places = [node for _, node in members]
            self._publisher.put(GROUP, resource, group, found, span=told.span(resource), places=places)
        elif delta.added or delta.removed or delta.moved:
            self._publisher.change(
                GROUP, resource, group, added=delta.added, removed=delta.removed, span=told.span(resource)
            )


def _apart(entries: Sequence[Any]) -> tuple[list[PublishedPolicy], list[Any]]:
    """The policies, and what is about groups."""
    policies = [entry for entry in entries if isinstance(entry, PublishedPolicy)]
    return policies, [entry for entry in entries if not isinstance(entry, PublishedPolicy | Processed)]
