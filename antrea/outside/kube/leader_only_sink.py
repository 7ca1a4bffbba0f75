"""A sink that writes while this replica leads: the others compute the same, and know it when they begin to lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from antrea.engine.entry import Sink
    from antrea.outside.kube.leadership import Leadership


class LeaderOnlySink:
    """Passes entries to `sink` while this replica leads, and drops them otherwise. `follow` takes the function that replays all of them."""

    def __init__(self, sink: Sink, lead: Leadership) -> None:
        self._sink = sink
        self._lead = lead

    def follow(self, replay: Callable[[LeaderOnlySink], None]) -> None:
        """`replay` is called whenever this replica begins to lead."""
        self._lead.listeners.append(lambda: replay(self) if self._lead.leads() else None)

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        """Raises what `sink` raises."""
        if self._lead.leads():
            await self._sink.apply(put, drop)

    async def resync(self, entries: Sequence[Any]) -> None:
        """Raises what `sink` raises."""
        if self._lead.leads():
            await self._sink.resync(entries)

    async def sweep(self, category: int) -> None:
        """Raises what `sink` raises."""
        if self._lead.leads():
            await self._sink.sweep(category)
