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
"""What can be a member: a Pod, an ExternalEntity, a Node."""


def label_key(kind: str, namespace: str, text: str) -> str:
    """Key of a `LabelSet`; `text` has `key=value`, sorted, with commas between: characters that no label contains."""
    return f"{kind} {namespace}/{text}" if kind else f"{namespace}/{text}"


class LabelSet(NamedTuple):
    """Labels that Pods of one Namespace have, or its ExternalEntities, or Nodes."""

    kind: str
    namespace: str
    labels: dict[str, str]


def label_set(key: str) -> LabelSet:
    """From its key: no name of a Namespace, and no label, contains a blank."""
    head, _, text = key.partition("/")
    kind, _, namespace = head.rpartition(" ")
    return LabelSet(kind, namespace, dict(pair.split("=", 1) for pair in text.split(",")) if text else {})


class GroupSelector(Fact, frozen=True):
    """Who belongs: those of `namespace`, or of what `namespaces` selects, or of all, that `labels` selects.

    Features derive it; the same one of several owners is one row.
    """

    name: str
    """The form that tells selectors apart."""
    places: tuple[Place, ...]
    namespace: str = ""
    namespaces: tuple[Requirement, ...] | None = None
    labels: tuple[Requirement, ...] | None = None
    kind: str = POD
    indexes: ClassVar[Mapping[str, Callable[[GroupSelector], Iterable[Hashable]]]] = {
        "place": lambda row: row.places
    }

    @property
    def key(self) -> str:
        return self.name


class Group(Fact, frozen=True):
    """A group that agents are told of, by the plural of its kind: the union of its selectors; none: it has no members."""

    resource: str
    name: str
    selectors: tuple[str, ...]
    uid: str = ""
    home: str = ""
    """The one Namespace that members may be of: if anybody else is selected, nobody belongs (see `Stranger`)."""
    service: tuple[str, str] | None = None
    """Namespace and name of a Service, which is the one member, on all Nodes."""
    indexes: ClassVar[Mapping[str, Callable[[Group], Iterable[Hashable]]]] = {
        "selector": lambda row: row.selectors,
        "everywhere": lambda row: (True,) if row.service else (),
    }

    @property
    def key(self) -> str:
        return f"{self.resource}/{self.name}"


class Matches(Fact, frozen=True):
    """All who have these labels belong where one of these selectors is used; derived, one for each label set."""

    labels: str
    """Key of the `LabelSet`."""
    selectors: tuple[str, ...]
    """Keys."""
    groups: tuple[Group, ...]
    """Made of one of them or more."""
    told: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Of those without a home, the names, by the plural of their kind."""
    indexes: ClassVar[Mapping[str, Callable[[Matches], Iterable[Hashable]]]] = {
        "egressgroups": lambda row: (
            (row.labels,) if any(resource == "egressgroups" for resource, _ in row.told) else ()
        )
    }

    @property
    def key(self) -> str:
        return self.labels


class GroupNodes(Fact, frozen=True):
    """Nodes that members of this group are on, which policies are for; derived: what its members say is united."""

    group: str
    """Name of the `Group`."""
    parts: tuple[str, ...]
    """Sorted."""

    @property
    def key(self) -> str:
        return self.group

    def with_parts(self, parts: tuple[str, ...]) -> GroupNodes:
        """The same with these Nodes."""
        return GroupNodes(self.group, parts)


class Stranger(Fact, frozen=True):
    """Somebody is selected who is not of the Namespace that members of this group must be of."""

    group: str
    """Key of the `Group`."""

    @property
    def key(self) -> str:
        return self.group
