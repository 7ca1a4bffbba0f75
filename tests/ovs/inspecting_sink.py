"""A sink that inspects the switch after each call, and in which an agent can be killed between two calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.outside.vswitch.flow_sink import FlowSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.openflow.pipeline import Pipeline
    from antrea.outside.vswitch.ofctl import Ofctl


class InspectingSink(FlowSink):
    """Counts its calls; with `last` set, the call after that one waits until its agent is killed."""

    def __init__(self, ofctl: Ofctl, pipeline: Pipeline, cookie_round: int) -> None:
        super().__init__(ofctl, pipeline, cookie_round)
        self.calls = 0
        self.last = 0
        """The call that is the last before a kill; 0: there is none."""
        self.killed = asyncio.Event()

    def inspect(self) -> None:
        """What a test looks at."""
        raise NotImplementedError

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        if self.last and self.calls >= self.last:
            self.killed.set()
            await asyncio.Event().wait()
        await super().apply(put, drop)
        self._called()

    async def resync(self, entries: Sequence[Any]) -> None:
        await super().resync(entries)
        self._called()

    async def sweep(self, category: int) -> None:
        await super().sweep(category)
        self._called()

    def _called(self) -> None:
        self.calls += 1
        self.inspect()
