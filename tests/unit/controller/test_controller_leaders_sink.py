"""Statuses are written by the replica that leads, all of them as soon as it does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.outside.kube.leader_only_sink import LeaderOnlySink
from antrea.outside.kube.leadership import Leadership

if TYPE_CHECKING:
    from collections.abc import Sequence


class Kept:
    """A sink that keeps what it got."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        self.calls.append(("apply", (put, drop)))

    async def resync(self, entries: Sequence[Any]) -> None:
        self.calls.append(("resync", entries))

    async def sweep(self, category: int) -> None:
        self.calls.append(("sweep", category))


def test_only_who_leads_writes_and_who_begins_to_lead_replays() -> None:
    leads: list[bool] = [False]
    kept = Kept()
    replayed: list[LeaderOnlySink] = []
    lead = Leadership(lambda: leads[0])
    sink = LeaderOnlySink(kept, lead)
    sink.follow(replayed.append)

    async def work() -> None:
        for now in (False, True, False):
            leads[0] = now
            lead.changed()
            await sink.apply(["a"], ["b"])
            await sink.resync(["c"])
            await sink.sweep(7)

    asyncio.run(work())
    assert kept.calls == [("apply", (["a"], ["b"])), ("resync", ["c"]), ("sweep", 7)]
    assert replayed == [sink]
