"""One fixture: an engine that runs against a switch in memory until the test ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
from engine_world import QUICK, UNITS, Flow, Route, Snat, Status, Switch

from antrea.engine import Engine, Facts, Sink, Unit


class World:
    """Facts, the running engine and its switches: `flows` for Flow, `host` for Snat and Route, `api` for Status."""

    def __init__(self, units: Iterable[Unit], facts: Facts, **options: Any) -> None:
        self.facts = facts
        self.flows, self.host, self.api = Switch(), Switch(), Switch()
        sinks: dict[type, Sink] = {Flow: self.flows, Snat: self.host, Route: self.host, Status: self.api}
        self.engine = Engine(facts, units, sinks, pace=options.pop("pace", QUICK), **options)
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.engine.run())

    @property
    def state(self) -> dict[Any, Any]:
        return {**self.flows.state, **self.host.state, **self.api.state}


Run = Callable[..., World]


@pytest.fixture
async def world() -> AsyncIterator[Run]:
    """`world(units, start=True, **options)` makes one; the test ends what it started."""
    made: list[World] = []

    def make(
        units: Iterable[Unit] = UNITS, *, facts: Facts | None = None, start: bool = True, **options: Any
    ) -> World:
        made.append(World(units, facts or Facts(), **options))
        if start:
            made[-1].start()
        return made[-1]

    yield make
    for one in made:
        if one.task is not None:
            one.task.cancel()
            await asyncio.gather(one.task, return_exceptions=True)
