"""The watches of kube-apiserver that a program needs: one for each collection and selector."""

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
    for one in watched:
        if (first := writers.get(one.fact)) is None:
            writers[one.fact] = one
            groups.setdefault((one.path, one.field_selector), []).append(one)
        elif first != one:
            raise ValueError(
                f"{one.fact.__name__} is written by two watches, of {first.path} and of {one.path}: give each a fact of its own"
            )
    return tuple(_watch(found, selector.format(node=node)) for (_, selector), found in groups.items())


def _watch(found: list[Watched], selector: str) -> Watch:
    first = found[0]
    for one in found:
        if (one.kind, one.metadata_only) != (first.kind, first.metadata_only):
            raise ValueError(
                f"{one.path} is decoded as {first.kind.__name__} for {first.fact.__name__} and as {one.kind.__name__} for "
                f"{one.fact.__name__}: let both read the same type"
            )
    return Watch(
        path=first.path,
        kind=first.kind,
        rows={one.fact: one.row for one in found},
        query={"fieldSelector": selector} if selector else {},
        optional=all(one.optional for one in found),
        metadata_only=first.metadata_only,
    )
