"""How the controller finds the members of groups: label sets on one side, selectors on the other, matches between."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar

from antrea.facts.fact import Fact

Requirement = tuple[str, str, tuple[str, ...]]
"""Label key, operator (=, in, notin, exists, !), values in order."""
Place = tuple[str, ...]
"""Where a selector is found by the label sets that it may match."""


class LabelSet(Fact, frozen=True):
    """Labels that Pods of one Namespace have; derived from the Pods."""

    namespace: str
    text: str
    """`key=value`, sorted, with commas between: characters that no label contains."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.text}"

    @property
    def labels(self) -> dict[str, str]:
        """As a mapping."""
        return dict(pair.split("=", 1) for pair in self.text.split(",")) if self.text else {}


class GroupSelector(Fact, frozen=True):
    """Which Pods belong: those of `namespace`, or of what `namespaces` selects, or of all, that `pods` selects.

    Features derive it; the same one of several owners is one row.
    """

    name: str
    """The form that tells selectors apart."""
    places: tuple[Place, ...]
    namespace: str = ""
    namespaces: tuple[Requirement, ...] | None = None
    pods: tuple[Requirement, ...] | None = None
    indexes: ClassVar[Mapping[str, Callable[[GroupSelector], Iterable[Hashable]]]] = {
        "place": lambda row: row.places
    }

    @property
    def key(self) -> str:
        return self.name


class Match(Fact, frozen=True):
    """All Pods with these labels belong where this selector is used."""

    labels: str
    selector: str
    indexes: ClassVar[Mapping[str, Callable[[Match], Iterable[Hashable]]]] = {
        "labels": lambda row: (row.labels,)
    }

    @property
    def key(self) -> str:
        return f"{self.labels} {self.selector}"


class Group(Fact, frozen=True):
    """A group that agents are told of, by the plural of its kind; no selector: it has no members."""

    resource: str
    name: str
    selector: str
    uid: str = ""
    indexes: ClassVar[Mapping[str, Callable[[Group], Iterable[Hashable]]]] = {
        "selector": lambda row: (row.selector,)
    }

    @property
    def key(self) -> str:
        return f"{self.resource}/{self.name}"


class GroupNode(Fact, frozen=True):
    """A member of this group is on this Node."""

    group: str
    """Key of the `Group`."""
    node: str
    indexes: ClassVar[Mapping[str, Callable[[GroupNode], Iterable[Hashable]]]] = {
        "group": lambda row: (row.group,)
    }

    @property
    def key(self) -> str:
        return f"{self.group} {self.node}"
