"""Turns the list and watch of one resource into rows of one kind of fact: none, one or several for each object."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping  # noqa: TC003 (msgspec reads annotations)
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from antrea.facts.fact import each
from antrea.outside.kube import NO_QUERY, Put, Some

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.facts.fact import Fact, Rows
    from antrea.outside.kube import Drop, Kube

T = TypeVar("T")

Keys = str | tuple[str, ...]
"""A single one as it is."""

SLICE = 500
"""Rows that are dropped in one go: the loop breathes in between, as it does between pages of a list."""


def _nobody(_: object) -> None:
    """Nobody wants to know."""


class KindFeed(Generic[T]):
    """Feed of `fact` rows: `row` maps an object to its row, to several, or to None if it gives none (now).

    All rows of `fact` are this feed's: what a new list lacks is dropped. `path` is a collection such as
    /api/v1/nodes, `query` narrows it: labelSelector, fieldSelector.
    """

    def __init__(
        self,
        kube: Kube,
        path: str,
        kind: type[T],
        *,
        fact: type[Fact],
        row: Callable[[T], Rows],
        query: Mapping[str, str] = NO_QUERY,
        heard: Callable[[T], None] = _nobody,
    ) -> None:
        """`heard` is called with each object that is there, whether it gives a row or not."""
        self._kube = kube
        self._path = path
        self._kind = kind
        self._fact = fact
        self._row = row
        self._query = query
        self._heard = heard
        self._keys: dict[str, Keys] = {}
        """Name of an object -> keys of its rows."""
        self._unseen: set[str] = set()
        """Keys of rows that the list which is being read has not confirmed yet."""
        self.trouble = ""
        """Why the watch is interrupted; empty while it works. For readiness checks and antctl."""
        self._version = -1
        """The resourceVersion up to which all has been heard; -1 before the first list has ended."""
        self._news = asyncio.Event()

    async def run(self, facts: Facts) -> None:
        """Forever: list, then watch. While the watch is interrupted the rows stay and count as not synced."""

        def troubled(why: str) -> None:
            if why and not self.trouble:
                facts.lost(self._fact)
            elif self.trouble and not why:
                facts.synced(self._fact)
            self.trouble = why

        self._unseen = {row.key for row in facts.all(self._fact)}
        changes = self._kube.watch_pages(self._path, self._kind, self._query, trouble=troubled)
        async for change in changes:
            if isinstance(change, Some):
                await self._listed(facts, change)
            else:
                self._apply(facts, change)

    @property
    def size(self) -> int:
        """Objects that give a row."""
        return len(self._keys)

    async def reaches(self, version: int) -> None:
        """Returns when all has been heard up to this resourceVersion of an object of this kind, and the rows say so."""
        while self._version < version:
            self._news.clear()
            await self._news.wait()

    def _at(self, version: str) -> None:
        self._version = int(version or 0)
        self._news.set()

    async def _listed(self, facts: Facts, page: Some[T]) -> None:
        if page.first:
            for keys in self._keys.values():
                self._unseen.update(_all(keys))
            self._keys = {}
        for found in page.objects:
            self._heard(found)
            if row := self._row(found):
                self._unseen.difference_update(_all(self._put(facts, _name(found), row)))
        if not (page.first and page.last):
            # what a long list leaves is there to stay: full collections would hold the loop longer and longer
            gc.freeze()
        if not page.last:
            return
        for count, key in enumerate(self._unseen, 1):
            facts.drop(self._fact, key)
            if count % SLICE == 0:
                await asyncio.sleep(0)
        self._unseen = set()
        facts.synced(self._fact)
        self._at(page.version)

    def _apply(self, facts: Facts, change: Put[T] | Drop[T]) -> None:
        name = _name(change.object)
        row = None
        if isinstance(change, Put):
            self._heard(change.object)
            row = self._row(change.object)
        before = self._keys.pop(name, ())
        now = self._put(facts, name, row) if row else ()
        if before != now:
            for key in set(_all(before)).difference(_all(now)):
                facts.drop(self._fact, key)
        self._at(_version(change.object))

    def _put(self, facts: Facts, name: str, found: Rows) -> Keys:
        """Keys of the rows."""
        rows = each(found)
        keys = tuple(row.key for row in rows)
        # equal texts are held once, and one without a tuple: there may be 100,000
        one = keys[0] if len(keys) == 1 else keys
        self._keys[name] = kept = name if one == name else one
        for row in rows:
            facts.put(row)
        return kept


def _all(keys: Keys) -> tuple[str, ...]:
    return (keys,) if isinstance(keys, str) else keys


def _version(found: Any) -> str:
    version: str = found.metadata.resource_version
    return version


def _name(found: Any) -> str:
    return f"{found.metadata.namespace}/{found.metadata.name}"
