"""A collector that is a Service: records go there as soon as the Service is, however long it was away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from free_port import free_port

from antrea.config.shape import Collector as CollectorAddress
from antrea.engine import Facts
from antrea.facts.service import Service
from antrea.features.flow_export.agent_part import destination
from antrea.features.flow_export.agent_part.destination import Destination
from antrea.features.flow_export.settings import Trust
from antrea.outside.ipfix.collector import Collector

if TYPE_CHECKING:
    import pytest

    from antrea.apis.flow import FlowRecord


LOOKS = 20
"""Of which pauses that double leave half as many in the time that the test waits."""


class CountedFacts(Facts):
    """Counts how often a row was looked for."""

    looks = 0

    def get(self, kind: type[Any], key: str = "self") -> Any:
        self.looks += 1
        return super().get(kind, key)


async def test_a_service_that_comes_late_gets_records_within_a_second_and_not_after_longer_and_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(destination, "FIRST_PAUSE", 0.02)
    port = free_port()
    facts = CountedFacts()

    def due(_: float, most: int) -> list[FlowRecord]:
        return []

    to = CollectorAddress("flow-aggregator/flow-aggregator", port, "tcp")
    agent = Destination(facts, cast("Any", None), to, Trust(), "n1", due)
    listening = asyncio.Event()
    serving = asyncio.create_task(
        Collector(lambda _: None).serve("127.0.0.1", port, "tcp", lambda _: listening.set())
    )
    running = asyncio.create_task(agent.run())
    try:
        async with asyncio.timeout(10):
            await listening.wait()
        async with asyncio.timeout(20):
            while facts.looks < LOOKS:  # noqa: ASYNC110 (it looks by itself)
                await asyncio.sleep(0.01)
        assert "has no ClusterIP" in agent.trouble
        facts.put(Service("flow-aggregator", "flow-aggregator", ("127.0.0.1",), (("TCP", port),)))
        async with asyncio.timeout(20):
            while agent.trouble:  # noqa: ASYNC110 (the network)
                await asyncio.sleep(0.01)
        assert agent.connections == 1
    finally:
        for task in (running, serving):
            task.cancel()
        await asyncio.gather(running, serving, return_exceptions=True)
