"""The sink that publishes to agents: groups and their members go into the stores of the API server process, change by change."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.controlplane import GROUP, GroupMember
from antrea.apis.meta import ObjectMetadata
from antrea.controller.apiserver.store_sync import ROWS
from antrea.features.grouping.member import ADDRESS, APPLIED
from antrea.features.grouping.publication import (
    POLICIES,
    GroupHead,
    GroupSpan,
    Membership,
    Memberships,
    ProcessedPods,
    PublishedObject,
    PublishedPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from antrea.controller.apiserver.process import Publisher
    from antrea.features.grouping.publication import GroupEntry

Name = tuple[str, str]
"""A group: plural of its kind, name."""
Placed = tuple[GroupMember, str]
"""A member and the Node that it is on, "" for none."""
Left = Callable[[str, Iterable[str]], None]
"""Called when a policy, by its UID, no longer spans these Nodes; only for policies with a realization status."""


class _PublishedGroup:
    """One group as agents have it."""

    def __init__(self) -> None:
        self.head: GroupHead | None = None
        self.policies = 0
        """How many NetworkPolicies of Kubernetes name it: it exists as long as any does, or its head."""
        self.members: dict[str, Placed] = {}
        self.nodes: Counter[str] = Counter()
        """How many members are on each Node."""
        self.wanted: tuple[str, ...] = ()
        """Nodes that need it for their policies, wherever its members are."""

    @property
    def exists(self) -> bool:
        """Whether agents receive it."""
        return self.head is not None or self.policies > 0

    @property
    def empty(self) -> bool:
        """Whether nothing refers to it."""
        return not (self.exists or self.members or self.wanted)

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
        return self.wanted if resource == ADDRESS else tuple(node for node in self.nodes if node)


class _Delta(msgspec.Struct):
    """Changes of one batch to one group."""

    added: list[Placed] = []
    removed: list[Placed] = []
    anew: bool = False
    """Its head is new: it is published whole."""
    moved: bool = False
    """Other Nodes need it now."""


class PublishSink:
    """Takes GroupHead, GroupSpan, Membership, Memberships, PublishedPolicy, PublishedObject and ProcessedPods."""

    def __init__(self, publisher: Publisher, left: Left, plurals: Collection[str]) -> None:
        """`plurals`: the kinds that are published."""
        self._publisher = publisher
        self._left = left
        self._plurals = plurals
        self._pods: dict[str, Memberships] = {}
        """Groups of each Pod as published last."""
        self._published: dict[Name, _PublishedGroup] = {}
        self._policies: dict[str, PublishedPolicy] = {}
        """Last published policies by UID."""
        self.processed: Counter[str] = Counter()
        """Number of objects published or withdrawn since this process started, by plural."""

    def counts(self) -> Counter[str]:
        """How many there are of each kind, by its plural."""
        groups = Counter(resource for (resource, _), published in self._published.items() if published.exists)
        return groups + Counter({POLICIES: len(self._policies)})

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        """Never refuses: the API server process takes everything, or has ended."""
        deltas: dict[Name, _Delta] = defaultdict(_Delta)
        marks = [entry for entry in put if isinstance(entry, ProcessedPods)]
        (policies, put_groups), (withdrawn, dropped) = _apart(put), _apart(drop)
        for entry in put_groups:
            self._put(entry, deltas)
        for policy in policies:
            self._name(policy, deltas)
        gone = dict.fromkeys(self._dropped(dropped, deltas))
        for policy, after in (
            *((policy, policy) for policy in policies),
            *((policy, None) for policy in withdrawn),
        ):
            gone |= dict.fromkeys(self._unname(self._policies.get(policy.key), after))
        self.processed[POLICIES] += len(policies) + len(withdrawn)
        self.processed.update(resource for resource, _ in {*deltas, *gone})
        for policy in withdrawn:
            self._left(policy.key, _reporters(self._policies.pop(policy.key, None)))
            self._publisher.drop(GROUP, POLICIES, policy.key)
        for name, delta in deltas.items():
            published = self._published.get(name)
            if published is not None and (published.exists or name in gone):  # else told once it exists
                self._publish(published, name, delta)
        for policy in policies:
            before, nodes = _reporters(self._policies.get(policy.key)), _reporters(policy)
            self._left(policy.key, [] if before == nodes else sorted({*before} - {*nodes}))
            self._policies[policy.key] = policy
            self._publisher.put(GROUP, POLICIES, policy.key, policy.policy, span=policy.nodes)
        for name in gone:
            self._forget(name)
            self._publisher.drop(GROUP, *name)
        self._publish_objects(put, drop)
        for mark in marks:
            self._publisher.processed(mark.node, mark.version)
        await self._publisher.drained()

    async def resync(self, entries: Sequence[Any]) -> None:
        """All groups anew: the stores of the front are empty when this process starts."""
        self._published.clear()
        self._pods.clear()
        self._policies.clear()
        await self.apply(entries, ())

    async def sweep(self, _category: int) -> None:
        """Everything is published: watches may begin."""
        for plural in sorted(self._plurals):
            self._publisher.synced(GROUP, plural)

    def _publish_objects(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        """They stand for themselves: no group exists because of one."""
        for entry in put:
            if isinstance(entry, PublishedObject):
                self._publisher.put(GROUP, entry.resource, entry.name, entry.content, span=entry.nodes)
        for entry in drop:
            if isinstance(entry, PublishedObject):
                self._publisher.drop(GROUP, entry.resource, entry.name)

    def _put(self, entry: GroupEntry | Memberships, deltas: dict[Name, _Delta]) -> None:
        if isinstance(entry, Memberships):
            self._put_pod(entry, deltas)
            return
        name = entry.group
        if isinstance(entry, GroupHead):
            self._published.setdefault(name, _PublishedGroup()).head = entry
            deltas[name].anew = True
        elif isinstance(entry, GroupSpan):
            self._published.setdefault(name, _PublishedGroup()).wanted = entry.parts
            deltas[name].moved = True
        elif isinstance(entry, Membership):
            placed = (entry.member, entry.node)
            before = self._published.setdefault(name, _PublishedGroup()).enter(entry.who, placed)
            if before != placed:
                deltas[name].added.append(placed)
                deltas[name].removed += [before] if before else []

    def _put_pod(self, entry: Memberships, deltas: dict[Name, _Delta]) -> None:
        """It leaves the groups that it is no longer in."""
        before, self._pods[entry.who] = self._pods.get(entry.who), entry
        now = {membership.group: membership for membership in entry.each()}
        for membership in before.each() if before else ():
            if membership.group not in now:
                self._leave(membership, deltas)
        for membership in now.values():
            self._put(membership, deltas)

    def _leave(self, membership: Membership, deltas: dict[Name, _Delta]) -> None:
        published = self._published.get(membership.group)
        before = published.leave(membership.who) if published else None
        if before is not None:
            deltas[membership.group].removed.append(before)
            self._forget(membership.group)

    def _forget(self, name: Name) -> None:
        """Members of a group that is not published any more may still be withdrawn, or stay until it is published again."""
        if name in self._published and self._published[name].empty:
            del self._published[name]

    def _name(self, policy: PublishedPolicy, deltas: dict[Name, _Delta]) -> None:
        """Groups that the policy names exist from now on."""
        for name in _groups(policy) - _groups(self._policies.get(policy.key)):
            published = self._published.setdefault(name, _PublishedGroup())
            deltas[name].anew |= not published.exists
            published.policies += 1

    def _unname(self, before: PublishedPolicy | None, after: PublishedPolicy | None) -> list[Name]:
        """Return the groups that no policy names any more."""
        gone = []
        for name in sorted(_groups(before) - _groups(after)):
            published = self._published[name]
            published.policies -= 1
            if not published.exists:
                gone.append(name)
        return gone

    def _dropped(self, drop: Iterable[GroupEntry | Memberships], deltas: dict[Name, _Delta]) -> list[Name]:
        gone = []
        for entry in drop:
            if isinstance(entry, Memberships):
                for membership in entry.each():
                    self._leave(membership, deltas)
                self._pods.pop(entry.who, None)
            elif isinstance(entry, Membership):
                self._leave(entry, deltas)
            elif (published := self._published.get(entry.group)) is None:
                continue
            elif isinstance(entry, GroupHead):
                published.head = None
                gone += [] if published.exists else [entry.group]
            else:
                published.wanted, deltas[entry.group].moved = (), True
        return gone

    def _publish(self, published: _PublishedGroup, name: Name, delta: _Delta) -> None:
        resource, group = name
        if delta.anew:
            members = [*published.members.values()]
            patch = ROWS[GROUP, resource].struct(
                metadata=ObjectMetadata(name=group, uid=published.head.uid if published.head else group),
                group_members=tuple(member for member, _ in members),
            )
            places = [node for _, node in members]
            self._publisher.put(GROUP, resource, group, patch, span=published.span(resource), places=places)
        elif delta.added or delta.removed or delta.moved:
            self._publisher.change(
                GROUP,
                resource,
                group,
                added=delta.added,
                removed=delta.removed,
                span=published.span(resource),
            )


def _groups(policy: PublishedPolicy | None) -> set[Name]:
    """Groups that exist because this policy names them, under names that are their UIDs; others have a head."""
    if policy is None or policy.policy.priority is not None:
        return set()
    names = {(APPLIED, name) for name in policy.policy.applied_to_groups}
    for rule in policy.policy.rules:
        for peer in (rule.from_, rule.to):
            names.update([(ADDRESS, name) for name in peer.address_groups])
    return names


def _reporters(policy: PublishedPolicy | None) -> tuple[str, ...]:
    """Nodes whose agents report on this policy."""
    return () if policy is None or policy.policy.priority is None else policy.nodes


def _apart(entries: Sequence[Any]) -> tuple[list[PublishedPolicy], list[Any]]:
    """The policies, and what is about groups."""
    policies = [entry for entry in entries if isinstance(entry, PublishedPolicy)]
    others = PublishedPolicy | PublishedObject | ProcessedPods
    return policies, [entry for entry in entries if not isinstance(entry, others)]
