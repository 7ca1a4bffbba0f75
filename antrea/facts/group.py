"""How the controller finds members of groups: label sets on one side, selectors on the other, matches between."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar, NamedTuple

from antrea.facts.fact import Fact

Requirement = tuple[str, str, tuple[str, ...]]
"""Label key, operator (=, in, notin, exists, !), values in order."""
Place = tuple[str, ...]
"""Where a selector is found by the label sets that it may match."""
POD, ENTITY, NODE = "", "entity", "node"
"""Kinds of members: a Pod, an ExternalEntity, a Node."""


def label_key(kind: str, namespace: str, text: str) -> str:
    """Key of a `LabelSet`; `text` has `key=value`, sorted, with commas between: characters that no label contains."""
    return f"{kind} {namespace}/{text}" if kind else f"{namespace}/{text}"


class LabelSet(NamedTuple):
    """Labels that Pods of one Namespace have, or its ExternalEntities, or Nodes."""

    kind: str
    namespace: str
    labels: dict[str, str]


def label_set(key: str) -> LabelSet:
    """Return the labels of a key: no name of a Namespace, and no label, contains a blank."""
    head, _, text = key.partition("/")
    kind, _, namespace = head.rpartition(" ")
    return LabelSet(kind, namespace, dict(pair.split("=", 1) for pair in text.split(",")) if text else {})


class GroupSelector(Fact, frozen=True):
    """Members of a group: those of `namespace`, or of what `namespaces` selects, or of all, that `labels` selects.

    Features derive it; the same one of several owners is one row.
    """

    parts_only: ClassVar[bool] = True
    name: str
    """The canonical form."""
    places: tuple[Place, ...]
    namespace: str = ""
    namespaces: tuple[Requirement, ...] | None = None
    labels: tuple[Requirement, ...] | None = None
    kind: str = POD
    parts: tuple[PublishedGroup, ...] = ()
    """Groups made of it; values of several owners are merged."""
    indexes: ClassVar[Mapping[str, Callable[[GroupSelector], Iterable[Hashable]]]] = {
        "place": lambda row: row.places
    }

    @property
    def key(self) -> str:
        return self.name

    def with_parts(self, parts: tuple[PublishedGroup, ...]) -> GroupSelector:
        """The same with these groups."""
        return GroupSelector(
            self.name, self.places, self.namespace, self.namespaces, self.labels, self.kind, parts
        )


class PublishedGroup(Fact, frozen=True, order=True):
    """A group that is published to agents, by the plural of its kind. A row only if it is a Service's."""

    resource: str
    name: str
    uid: str = ""
    home: str = ""
    """The one Namespace of its members: if anything else is selected, the group is empty (see `ForeignMember`)."""
    service: tuple[str, str] | None = None
    """Namespace and name of a Service, which is the one member, on all Nodes."""
    indexes: ClassVar[Mapping[str, Callable[[PublishedGroup], Iterable[Hashable]]]] = {
        "everywhere": lambda row: (True,) if row.service else (),
    }

    @property
    def key(self) -> str:
        return f"{self.resource}/{self.name}"


UNPUBLISHED = PublishedGroup("", "")
"""The group of a selector that queries may name, though it is not published to agents."""


class Matches(Fact, frozen=True):
    """All who have these labels belong where one of these selectors is used; derived, one for each label set."""

    labels: str
    """Key of the `LabelSet`."""
    selectors: tuple[str, ...]
    """Keys."""
    groups: tuple[PublishedGroup, ...]
    """Made of one of them or more."""
    group_names: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names of groups without a home, by the plural of their kind."""
    homes: tuple[PublishedGroup, ...] = ()
    """Groups with a home."""
    indexes: ClassVar[Mapping[str, Callable[[Matches], Iterable[Hashable]]]] = {
        "egressgroups": lambda row: (
            (row.labels,) if any(resource == "egressgroups" for resource, _ in row.group_names) else ()
        )
    }

    @property
    def key(self) -> str:
        return self.labels


class GroupNodes(Fact, frozen=True):
    """Nodes that members of this group are on, which policies apply to; derived: values of all members are merged."""

    parts_only: ClassVar[bool] = True
    group: str
    """Name of the `PublishedGroup`."""
    parts: tuple[str, ...]
    """Sorted."""

    @property
    def key(self) -> str:
        return self.group

    def with_parts(self, parts: tuple[str, ...]) -> GroupNodes:
        """The same with these Nodes."""
        return GroupNodes(self.group, parts)


class GroupPorts(Fact, frozen=True):
    """Ports that members of this group name; derived, for groups of rules with named ports; values of all members are merged."""

    parts_only: ClassVar[bool] = True
    group: str
    """Name of the `PublishedGroup`."""
    parts: tuple[tuple[str, str], ...]
    """Name and protocol, sorted; ("", "") stands for the member itself, which may declare no port name."""

    @property
    def key(self) -> str:
        return self.group

    def with_parts(self, parts: tuple[tuple[str, str], ...]) -> GroupPorts:
        """The same with these ports."""
        return GroupPorts(self.group, parts)


class UnenforcedMember(Fact, frozen=True):
    """An ExternalEntity that policies by this group are for, and no agent enforces them for; derived."""

    group: str
    """Name of the `PublishedGroup`."""
    entity: str
    """namespace/name"""
    indexes: ClassVar[Mapping[str, Callable[[UnenforcedMember], Iterable[Hashable]]]] = {
        "group": lambda row: (row.group,)
    }

    @property
    def key(self) -> str:
        return f"{self.group} {self.entity}"


class AppliedNode(Fact, frozen=True):
    """A Node that policies by this group are for, as that Node's own; derived."""

    group: str
    """Name of the `PublishedGroup`."""
    node: str
    indexes: ClassVar[Mapping[str, Callable[[AppliedNode], Iterable[Hashable]]]] = {
        "group": lambda row: (row.group,)
    }

    @property
    def key(self) -> str:
        return f"{self.group} {self.node}"


class ForeignMember(Fact, frozen=True):
    """Something is selected that is not of the Namespace to which members of this group are restricted."""

    group: str
    """Key of the `PublishedGroup`."""

    @property
    def key(self) -> str:
        return self.group
