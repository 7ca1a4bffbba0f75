"""Objects of one resource in memory, and the watches over them: each gets what its Node needs, as upstream's agents expect.

A put is ADDED for those who did not see the object before, MODIFIED for those who did, DELETED for those who no longer
need it. Groups send MODIFIED as a patch of members, and, where `Members.by_node`, only members of the watcher's Node.
parity: pkg/apiserver/storage/ram/store.go, pkg/controller/networkpolicy/store
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from antrea.apis.controlplane import PROCESSED
from antrea.apis.meta import ObjectMetadata
from antrea.outside.apiserver.form import body
from antrea.outside.apiserver.row import GroupRow, Row
from antrea.outside.apiserver.watcher import Selection, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from antrea.apis.resource import Resource
    from antrea.outside.apiserver.form import Form, Pieces
    from antrea.outside.apiserver.row import Change, Placed

NOBODY: frozenset[str] = frozenset()
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Store:
    """All objects of `resource` by key: the name, or NAMESPACE/NAME. `synced`: a whole pass has filled it once."""

    def __init__(self, resource: Resource, now: Callable[[], float] = time.monotonic) -> None:
        self.resource = resource
        self.version = 0
        """Grows with every put and drop."""
        self.synced = False
        self._now = now
        self._rows: dict[str, Row] = {}
        self._watchers: dict[str | None, dict[Watcher, None]] = {}
        """Watchers by the Node that they request."""
        self._processed: dict[str, int] = {}
        """Processed versions by Node."""
        self._waiting: list[Callable[[], None]] = []
        self.listeners: list[Callable[[str, Any], None]] = []
        """Called with the key and what is put; with None once it is dropped."""

    def put(self, key: str, value: Any, span: frozenset[str] = NOBODY, places: Sequence[str] = ()) -> None:
        """`value` is what there is now, and the Nodes `span` need it.

        Of a group, `places` has the Node of each of its members, "" for none; a member on two Nodes is there twice.
        """
        self.version += 1
        before = self._rows.get(key)
        after = (GroupRow if self.resource.members else Row).of(self.resource, value, span, places)
        self._rows[key] = after
        self._publish(key, before, after, after.since(before) if before else None)
        for tell in self.listeners:
            tell(key, value)

    def change(
        self,
        key: str,
        *,
        added: Iterable[Placed],
        removed: Iterable[Placed] = (),
        span: frozenset[str] | None = None,
    ) -> None:
        """Change the members of the group `key`, each with its Node ("" for none); the cost is that of the change."""
        row = self._rows[key]
        if not isinstance(row, GroupRow):
            raise TypeError(f"{self.resource.plural} are not groups")
        self.version += 1
        before, change = row.changed(added, removed, row.span if span is None else span)
        self._publish(key, before, row, change)

    def drop(self, key: str) -> None:
        """Remove the object; a missing key is not a change."""
        before = self._rows.pop(key, None)
        if before is not None:
            self.version += 1
            self._publish(key, before, None, None)
            for tell in self.listeners:
                tell(key, None)

    def sync(self) -> None:
        """A whole pass has filled it: what waits for that may begin."""
        self.synced = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def when_synced(self, callback: Callable[[], None]) -> None:
        """Call `callback` once a whole pass has filled it; at once if one has."""
        if self.synced:
            callback()
        else:
            self._waiting.append(callback)

    async def filled(self, seconds: float) -> bool:
        """Whether a whole pass has filled it; waits for that no longer than `seconds`."""
        event = asyncio.Event()
        self.when_synced(event.set)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True

    def get(self, key: str) -> tuple[Any, bytes] | None:
        """The object with its body."""
        row = self._rows.get(key)
        return row.whole(None) if row else None

    def selected(self, selection: Selection) -> list[tuple[Any, bytes]]:
        """Return the selected objects, each as the selection's Node sees it, with its body; sorted by key."""
        rows = ((key, self._rows[key]) for key in sorted(self._rows))
        return [row.whole(selection.node) for key, row in rows if selection.wants(key, row.span)]

    def values(self) -> Iterator[Any]:
        """All objects without their bodies, sorted by key."""
        return (self._rows[key].value for key in sorted(self._rows))

    def objects(self) -> list[tuple[Any, bytes]]:
        """All objects with their bodies, sorted by key."""
        return self.selected(Selection())

    def __len__(self) -> int:
        return len(self._rows)

    def watchers(self) -> list[Watcher]:
        """All that watch now."""
        return [watcher for group in self._watchers.values() for watcher in group]

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that have a watcher."""
        return frozenset(node for node in self._watchers if node is not None)

    def processed(self, node: str, version: int) -> None:
        """All about the Pods of `node`, up to this resourceVersion, is here: watchers for it that asked for bookmarks get one."""
        self._processed[node] = version
        for watcher in self._watchers.get(node, ()):
            if watcher.bookmarks:
                watcher.offer(self._bookmark(watcher.form, {PROCESSED: str(version)}))

    def watch(
        self, selection: Selection, form: Form, *, mark_end: bool = False, bookmarks: bool = False
    ) -> Watcher:
        """A watcher that gets what is selected now, a bookmark, then changes; `forget` it at its end.

        With `mark_end` the bookmark is marked as the end of the initial events. With `bookmarks` it, and others that follow,
        carry the resourceVersion up to which the Pods of the Node that is asked for are processed; upstream's agents take no other than the first.
        """
        watcher = Watcher(selection, form, self._now)
        watcher.bookmarks = bookmarks and selection.node is not None
        notes = {INITIAL_EVENTS_END: "true"} if mark_end else {}
        if watcher.bookmarks and selection.node is not None:
            notes[PROCESSED] = str(self._processed.get(selection.node, 0))
        watcher.begin(self._initial(selection, form, notes))
        self._watchers.setdefault(selection.node, {})[watcher] = None
        return watcher

    def forget(self, watcher: Watcher) -> None:
        """Its connection is gone."""
        group = self._watchers.get(watcher.selection.node, {})
        group.pop(watcher, None)
        if not group:
            self._watchers.pop(watcher.selection.node, None)

    def _initial(self, selection: Selection, form: Form, notes: dict[str, str]) -> Iterable[Pieces]:
        kind = self.resource.kind
        for key in sorted(self._rows):
            row = self._rows[key]
            if selection.wants(key, row.span):
                value, rest = row.whole(selection.node)
                yield _line("ADDED", form.event(kind, value, rest))
        yield self._bookmark(form, notes)

    def _bookmark(self, form: Form, notes: dict[str, str]) -> Pieces:
        empty = self.resource.blank(ObjectMetadata(resource_version=str(self.version), annotations=notes))
        return _line("BOOKMARK", form.event(self.resource.kind, empty, body(empty)))

    def _publish(self, key: str, before: Row | None, after: Row | None, change: Change | None) -> None:
        """Send a change to the watchers that have the object or need it now; what is the same for several is encoded once."""
        spans = (before.span if before else NOBODY) | (after.span if after else NOBODY)
        nodes = spans & self._watchers.keys() if len(spans) > len(self._watchers) else spans
        lines: dict[tuple[str, str, str | None], Pieces | None] = {}
        for node in (None, *nodes):
            for watcher in self._watchers.get(node, ()):
                event = self._event(watcher, key, before, after)
                if not event:
                    continue
                row = after or before
                shared = None if row is None or not row.by_node or event == "DELETED" else node
                name = (event, watcher.form.key, shared)
                if name not in lines:
                    lines[name] = self._encoded(event, watcher.form, node, before, after, change)
                if (line := lines[name]) is not None:
                    watcher.offer(line)

    @staticmethod
    def _event(watcher: Watcher, key: str, before: Row | None, after: Row | None) -> str:
        was = before is not None and watcher.selection.wants(key, before.span)
        now = after is not None and watcher.selection.wants(key, after.span)
        if now:
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else ""

    def _encoded(
        self,
        event: str,
        form: Form,
        node: str | None,
        before: Row | None,
        after: Row | None,
        change: Change | None,
    ) -> Pieces | None:
        if event == "DELETED" and before:
            value = before.deleted_object()
            rest = body(value)
        elif event == "MODIFIED" and change:
            part = change.seen_by(node)
            if part is None:
                return None
            value, rest = part
        elif after:
            value, rest = after.whole(node)
        else:
            return None
        return _line(event, form.event(type(value).__name__, value, rest))


def _line(event: str, shown: Pieces) -> Pieces:
    return (b'{"type":"%b","object":' % event.encode(), *shown, b"}\n")
