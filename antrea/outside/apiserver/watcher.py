"""One watch: what it selects, what it has yet to get, and when it is cut off because it does not keep up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable  # noqa: TC003 (msgspec reads annotations)
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from antrea.outside.apiserver.form import Form, Pieces

EVENTS = 1000
"""Upstream's queue of a watcher: more waiting than this is being slow."""
TIMEOUT_SECONDS = 2.0
"""How long it may be slow; upstream gives 50 ms, but fills its queues from another thread than it empties them."""
MAX_EVENTS = 20 * EVENTS
MAX_BYTES = 32 << 20
"""Above these it is cut off at once; nearly all of these bytes are shared with other watchers."""


class Selection(msgspec.Struct, frozen=True):
    """Selection of a watch; None selects everything."""

    node: str | None = None
    key: str | None = None
    namespace: str | None = None

    def wants(self, key: str, span: frozenset[str]) -> bool:
        """Whether the object `key` that the Nodes `span` need is selected."""
        return (
            (self.node is None or self.node in span)
            and (self.key is None or self.key == key)
            and (self.namespace is None or key.startswith(f"{self.namespace}/"))
        )


class Watcher:
    """The queue between a store and a connection. `wake` is called when there is something to take or it has ended."""

    def __init__(self, selection: Selection, form: Form, now: Callable[[], float]) -> None:
        self.selection = selection
        self.form = form
        self.wake: Callable[[], None] = _wake_none
        self.bookmarks = False
        """Whether it wants to know what has been processed."""
        self.cut = ""
        """Reason of the cut; empty while the watch is open."""
        self._now = now
        self._first: deque[Pieces] = deque()
        self._queue: deque[Pieces] = deque()
        self._bytes = 0
        self._slow_since: float | None = None
        self._rest: deque[memoryview] = deque()

    def begin(self, lines: Iterable[Pieces]) -> None:
        """Send the first lines, whatever their size: all of them are shared with the store."""
        self._first.extend(lines)

    def offer(self, line: Pieces) -> None:
        """Append an event, or cut the watch off if too much waits already."""
        if self.cut:
            return
        self._queue.append(line)
        self._bytes += sum(map(len, line))
        if reason := self._behind():
            self.cut = reason
            self._first.clear()
            self._queue.clear()
            self._rest.clear()
        self.wake()

    def _behind(self) -> str:
        if len(self._queue) > MAX_EVENTS or self._bytes > MAX_BYTES:
            return "too much waits for it"
        if len(self._queue) <= EVENTS:
            self._slow_since = None
            return ""
        if self._slow_since is None:
            self._slow_since = self._now()
        return "it does not keep up" if self._now() - self._slow_since > TIMEOUT_SECONDS else ""

    @property
    def idle(self) -> bool:
        """Whether there is nothing to take."""
        return not (self._first or self._queue or self._rest)

    def pop(self, most: int) -> bytes:
        """Up to `most` bytes of what waits, in order; empty if there is nothing."""
        taken: list[bytes | memoryview] = []
        room = most
        while room > 0 and (piece := self._next()) is not None:
            if len(piece) > room:
                self._rest.appendleft(piece[room:])
                piece = piece[:room]
            taken.append(piece)
            room -= len(piece)
        return b"".join(taken)

    def _next(self) -> memoryview | None:
        if not self._rest:
            if self._first:
                line = self._first.popleft()
            elif self._queue:
                line = self._queue.popleft()
                self._bytes -= sum(map(len, line))
            else:
                return None
            self._rest.extend(map(memoryview, line))
        return self._rest.popleft()


def _wake_none() -> None:
    """No coroutine waits yet."""
