"""Turns the list and watch of one resource into rows of one kind of fact."""

from __future__ import annotations

from collections.abc import Callable, Mapping  # noqa: TC003 (msgspec reads annotations)
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from antrea.outside.kube import NO_QUERY, Drop, Listed, Put

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.facts.fact import Fact
    from antrea.outside.kube import Kube

T = TypeVar("T")


class KindFeed(Generic[T]):
    """Feed of `fact` rows: `row` maps an object to its row, or to None if it gives none (now).

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
        row: Callable[[T], Fact | None],
        query: Mapping[str, str] = NO_QUERY,
    ) -> None:
        self._kube = kube
        self._path = path
        self._kind = kind
        self._fact = fact
        self._row = row
        self._query = query
        self._keys: dict[str, str] = {}
        self.trouble = ""
        """Why the watch is interrupted; empty while it works. For readiness checks and antctl."""

    async def run(self, facts: Facts) -> None:
        """Forever: list, then watch. While the watch is interrupted the rows stay and count as not synced."""

        def troubled(why: str) -> None:
            if why and not self.trouble:
                facts.lost(self._fact)
            elif self.trouble and not why:
                facts.synced(self._fact)
            self.trouble = why

        changes = self._kube.watch(self._path, self._kind, self._query, trouble=troubled)
        async for change in changes:
            if isinstance(change, Listed):
                rows = {_name(found): self._row(found) for found in change.objects}
                self._keys = {name: row.key for name, row in rows.items() if row}
                facts.replace(self._fact, [row for row in rows.values() if row])
                facts.synced(self._fact)
            else:
                self._apply(facts, change)

    def _apply(self, facts: Facts, change: Put[T] | Drop[T]) -> None:
        name = _name(change.object)
        row = self._row(change.object) if isinstance(change, Put) else None
        before = self._keys.pop(name, None)
        if row:
            self._keys[name] = row.key
            facts.put(row)
        if before is not None and (row is None or row.key != before):
            facts.drop(self._fact, before)


def _name(found: Any) -> str:
    return f"{found.metadata.namespace}/{found.metadata.name}"
