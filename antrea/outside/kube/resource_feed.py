"""Turns the list and watch of one resource into rows of facts: of each kind none, one or several for each object."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Mapping  # noqa: TC003 (msgspec reads annotations)
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from antrea.facts.fact import each
from antrea.outside.kube.answer import Odd, Put, Some
from antrea.outside.kube.client import NO_QUERY
from antrea.outside.kube.odd_object import OddObjects

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.facts.fact import Fact, Rows
    from antrea.outside.kube.answer import Drop
    from antrea.outside.kube.client import Kube

T = TypeVar("T")

Keys = str | tuple[str, ...]
"""A single one as it is."""

SLICE = 500
"""Rows that are dropped in one go: the loop breathes in between, as it does between pages of a list."""


FORBIDDEN = "is forbidden: User "
"""kube-apiserver's words for rights that are missing."""


def resource_name(path: str) -> str:
    """The resource of a collection as in a ClusterRole: egresses.crd.antrea.io for /apis/crd.antrea.io/v1beta1/egresses."""
    parts = path.strip("/").split("/")
    return f"{parts[-1]}.{parts[1]}" if parts[0] == "apis" else parts[-1]


def missing_rights(refused: Mapping[str, str]) -> str:
    """A sentence about resources that may not be read, with kube-apiserver's words about the first."""
    names = sorted(refused)
    return (
        f"the right to read {', '.join(names)} is missing ({refused[names[0]]}):"
        " apply the ClusterRole of this version's manifest"
    )


def _ignore(_: object) -> None:
    """The default: no listener."""


class _RowSet:
    """The rows of one kind that the objects of a collection give, by the name of the object."""

    def __init__(self, fact: type[Fact], row: Callable[[Any], Rows]) -> None:
        self.fact, self.row = fact, row
        self.keys: dict[str, Keys] = {}
        """Name of an object -> keys of its rows."""
        self._before: dict[str, Keys] = {}
        """The same before the list which is being read."""
        self._unseen: set[str] = set()
        """Keys of rows that the list which is being read has not confirmed yet."""

    def begin(self, facts: Facts) -> None:
        """Adopt the rows that are there; the first list drops those that it does not have."""
        self._unseen = {row.key for row in facts.all(self.fact)}

    def begin_list(self) -> None:
        """Begin a list, which voids pages of a list that did not end."""
        for keys in self.keys.values():
            self._unseen.update(_all(keys))
        self._before, self.keys = self.keys, {}

    def take_listed(self, facts: Facts, name: str, rows: tuple[Fact, ...]) -> None:
        """Replace all rows of an object at once, as a watch does; the end of the list is for objects that are gone."""
        if not rows:
            return
        now = _all(self._put(facts, name, rows))
        self._unseen.difference_update(now)
        for key in self._unseen.intersection(_all(self._before.get(name, ()))):
            self._unseen.discard(key)
            facts.drop(self.fact, key)

    async def end_list(self, facts: Facts) -> None:
        """Drop the rows that the list has not confirmed."""
        for count, key in enumerate(self._unseen, 1):
            facts.drop(self.fact, key)
            if count % SLICE == 0:
                await asyncio.sleep(0)
        self._unseen, self._before = set(), {}

    def keep(self, name: str) -> None:
        """Keep the rows that were last made of an object, which cannot be read in the list which is being read."""
        if name not in self.keys and (keys := self._before.get(name)):
            self.keys[name] = keys
            self._unseen.difference_update(_all(keys))

    def replace(self, facts: Facts, name: str, rows: tuple[Fact, ...]) -> None:
        """Replace the rows of an object by these."""
        before = self.keys.pop(name, ())
        now = self._put(facts, name, rows) if rows else ()
        if before != now:
            for key in set(_all(before)).difference(_all(now)):
                facts.drop(self.fact, key)

    def _put(self, facts: Facts, name: str, rows: tuple[Fact, ...]) -> Keys:
        """Write the rows and return their keys."""
        keys = tuple(row.key for row in rows)
        # equal texts are held once, and one without a tuple: there may be 100,000
        keys_of_row = keys[0] if len(keys) == 1 else keys
        self.keys[name] = kept = name if keys_of_row == name else keys_of_row
        for row in rows:
            facts.put(row)
        return kept


class ResourceFeed(Generic[T]):
    """Feed of all kinds of rows that are made of one collection: each function of `rows` maps an object to its row, to several, or to None.

    All rows of these kinds are this feed's: what a new list lacks is dropped. `path` is a collection such as
    /api/v1/nodes, `query` narrows it: labelSelector, fieldSelector.
    """

    def __init__(
        self,
        kube: Kube,
        path: str,
        kind: type[T],
        *,
        rows: Mapping[type[Fact], Callable[[T], Rows]],
        query: Mapping[str, str] = NO_QUERY,
        received: Callable[[T], None] = _ignore,
        odd: OddObjects | None = None,
        optional: bool = False,
        metadata_only: bool = False,
    ) -> None:
        """`received` is called with each object, whether it gives a row or not; `odd` records those that cannot be decoded.

        While the API server has no collection that is `optional`, there are no objects. Of objects that are `metadata_only`
        the server sends nothing else.
        """
        self.odd = odd or OddObjects(path)
        self._kube = kube
        self.path = path
        self._kind = kind
        self._sets = tuple(_RowSet(fact, row) for fact, row in rows.items())
        self._query = query
        self._received = received
        self._optional, self._metadata_only = optional, metadata_only
        self.trouble = ""
        """Why the watch is interrupted; empty while it works. For readiness checks and antctl."""
        self._version = -1
        """The resourceVersion up to which everything was received; -1 before the first list has ended."""
        self._news = asyncio.Event()

    async def run(self, facts: Facts) -> None:
        """Forever: list, then watch. While the watch is interrupted the rows stay and count as not synced."""

        def troubled(why: str) -> None:
            if bool(why) != bool(self.trouble):
                for row_set in self._sets:
                    (facts.lost if why else facts.synced)(row_set.fact)
            self.trouble = why
            for row_set in self._sets:
                if FORBIDDEN in why:
                    facts.feeds.refusals[row_set.fact] = why
                else:
                    facts.feeds.refusals.pop(row_set.fact, None)

        for row_set in self._sets:
            facts.feeds.sources[row_set.fact] = resource_name(self.path)
            row_set.begin(facts)
        reporting = asyncio.create_task(self.odd.run(self._kube), name=f"decode failures of {self.path}")
        try:
            changes = self._kube.watch_pages(
                self.path, self._kind, self._query, trouble=troubled, optional=self._optional,
                metadata_only=self._metadata_only,
            )  # fmt: skip
            async for change in changes:
                if isinstance(change, Some):
                    await self._listed(facts, change)
                elif isinstance(change, Odd):
                    self._apply_odd(facts, change)
                else:
                    self._apply(facts, change)
        finally:
            reporting.cancel()

    @property
    def size(self) -> int:
        """Objects that give a row."""
        return max(len(row_set.keys) for row_set in self._sets)

    async def reaches(self, version: int) -> None:
        """Wait until everything up to this resourceVersion of an object of this kind is received and written."""
        while self._version < version:
            self._news.clear()
            await self._news.wait()

    def _at(self, version: str) -> None:
        with contextlib.suppress(ValueError):
            self._version = int(version or 0)
        self._news.set()

    async def _listed(self, facts: Facts, page: Some[T]) -> None:
        if page.first:
            for row_set in self._sets:
                row_set.begin_list()
        for decoded in page.objects:
            for row_set, rows in self._rows(decoded):
                row_set.take_listed(facts, _name(decoded), rows)
        for odd in page.odd:
            self._keep(odd)
        if not (page.first and page.last):
            # what a long list leaves is there to stay: full collections would hold the loop longer and longer
            gc.freeze()
        if not page.last:
            return
        for row_set in self._sets:
            await row_set.end_list(facts)
            facts.synced(row_set.fact)
        self._at(page.version)

    def _rows(self, decoded: T) -> list[tuple[_RowSet, tuple[Fact, ...]]]:
        """Make the rows of one object. A kind of which they cannot be made is left out: its last rows stay, as do all other kinds."""
        made: list[tuple[_RowSet, tuple[Fact, ...]]] = []
        odd: Odd | None = None
        try:
            self._received(decoded)
        except Exception as error:  # noqa: BLE001 (one object that cannot be read leaves the others)
            self._keep(self._odd(decoded, error))
            return []
        for row_set in self._sets:
            try:
                made.append((row_set, each(row_set.row(decoded) or ())))
            except Exception as error:  # noqa: BLE001 (one object that cannot be read leaves the others)
                odd = self._odd(decoded, error)
                row_set.keep(odd.full_name)
        if odd:
            self.odd.note(odd)
        else:
            self.odd.clear(_name(decoded))
        return made

    def _odd(self, decoded: Any, why: Exception) -> Odd:
        meta = decoded.metadata
        _, _, group = self.path.rpartition("/")[0].partition("/api")
        return Odd(
            meta.name, f"{type(why).__name__}: {why}", meta.namespace, getattr(meta, "uid", ""),
            meta.resource_version, self._kind.__name__, group.removeprefix("s/").removeprefix("/"),
        )  # fmt: skip

    def _keep(self, odd: Odd) -> None:
        """Keep the rows that were last made of an object that cannot be decoded."""
        for row_set in self._sets:
            row_set.keep(odd.full_name)
        self.odd.note(odd)

    def _apply_odd(self, facts: Facts, odd: Odd) -> None:
        if odd.gone:
            for row_set in self._sets:
                row_set.replace(facts, odd.full_name, ())
            self.odd.clear(odd.full_name)
        else:
            self._keep(odd)
        if odd.version:
            self._at(odd.version)

    def _apply(self, facts: Facts, change: Put[T] | Drop[T]) -> None:
        name = _name(change.object)
        if isinstance(change, Put):
            for row_set, rows in self._rows(change.object):
                row_set.replace(facts, name, rows)
        else:
            self.odd.clear(name)
            for row_set in self._sets:
                row_set.replace(facts, name, ())
        self._at(_version(change.object))


def _all(keys: Keys) -> tuple[str, ...]:
    return (keys,) if isinstance(keys, str) else keys


def _version(decoded: Any) -> str:
    version: str = decoded.metadata.resource_version
    return version


def _name(decoded: Any) -> str:
    return f"{decoded.metadata.namespace}/{decoded.metadata.name}"
