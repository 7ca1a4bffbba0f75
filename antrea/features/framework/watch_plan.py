"""Plan of the watches of kube-apiserver that a program needs: one for each collection and selector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.facts.fact import Fact, Rows

if TYPE_CHECKING:
    from antrea.features.framework.admission import Watched


class Watch(msgspec.Struct, frozen=True):
    """One list and watch. Each object is decoded once, as `kind`, and gives the rows of all kinds of facts in `rows`."""

    path: str
    kind: type
    rows: Mapping[type[Fact], Callable[[Any], Rows]]
    query: Mapping[str, str]
    optional: bool
    metadata_only: bool

    @property
    def name(self) -> str:
        """Path and selector, which no other watch of a plan has."""
        return "?".join((self.path, *self.query.values()))


def watch_plan(watched: Iterable[Watched], node: str = "") -> tuple[Watch, ...]:
    """Group the declarations of all features by path and selector; equal declarations of several features count as one.

    Raises ValueError if two different declarations write the same kind of fact, or decode objects of one watch differently.
    """
    writers: dict[type[Fact], Watched] = {}
    groups: dict[tuple[str, str], list[Watched]] = {}
    for declaration in watched:
        if (first := writers.get(declaration.fact)) is None:
            writers[declaration.fact] = declaration
            groups.setdefault((declaration.path, declaration.field_selector), []).append(declaration)
        elif first != declaration:
            raise ValueError(
                f"{declaration.fact.__name__} is written by two watches, of {first.path} and of {declaration.path}: give each a fact of its own"
            )
    return tuple(_watch(group, selector.format(node=node)) for (_, selector), group in groups.items())


def _watch(group: list[Watched], selector: str) -> Watch:
    first = group[0]
    for other in group:
        if (other.kind, other.metadata_only) != (first.kind, first.metadata_only):
            raise ValueError(
                f"{other.path} is decoded as {first.kind.__name__} for {first.fact.__name__} and as {other.kind.__name__} for "
                f"{other.fact.__name__}: let both read the same type"
            )
    return Watch(
        path=first.path,
        kind=first.kind,
        rows={declaration.fact: declaration.row for declaration in group},
        query={"fieldSelector": selector} if selector else {},
        optional=all(declaration.optional for declaration in group),
        metadata_only=first.metadata_only,
    )
