"""Lets agents know how far their Pods have been heard of, after all that was heard has been written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.facts.cluster import NodeHeard, Pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.apis import core
    from antrea.engine import Facts
    from antrea.facts.fact import Fact

AGAIN_SECONDS = 0.1


class Heard:
    """Writes NodeHeard. While a feed is interrupted it says nothing: a policy may have come that nobody here knows of."""

    def __init__(self, facts: Facts, troubled: Callable[[], bool]) -> None:
        self._facts = facts
        self._troubled = troubled
        self._latest: dict[str, int] = {}
        self._news = asyncio.Event()

    def of(self, kind: type[Fact]) -> Callable[[Any], None]:
        """What the feed of `kind` is to call with each object."""
        return self.note if kind is Pod else _nobody

    def note(self, pod: core.Pod) -> None:
        """The row of this Pod is written by who calls this, before anybody else has a turn."""
        node = pod.spec.node_name
        if node and not pod.spec.host_network:
            version = int(pod.metadata.resource_version or 0)
            self._latest[node] = max(version, self._latest.get(node, 0))
            self._news.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._news.wait()
            if self._troubled():
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            self._news.clear()
            latest, self._latest = self._latest, {}
            for node, version in latest.items():
                self._facts.put(NodeHeard(node, version))


def _nobody(_: object) -> None:
    """Only Pods wait."""
