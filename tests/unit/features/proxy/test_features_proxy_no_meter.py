"""A datapath that refuses meters serves Services all the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from test_features_proxy_all import WEB, world

from antrea.engine import Engine
from antrea.errors import Refused
from antrea.features.proxy.agent import FEATURE
from antrea.openflow.flow import Flow
from antrea.openflow.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Sequence


class Switch:
    """Takes flows, and no meters."""

    def __init__(self) -> None:
        self.flows: set[Flow] = set()

    async def apply(self, put: Sequence[Any], drop: Sequence[Any]) -> None:
        meters = [one for one in put if isinstance(one, Meter)]
        if meters:
            raise Refused(meters, "OFPMMFC_INVALID_METER")
        self.flows = (self.flows - {*drop}) | {*put}

    async def resync(self, entries: Sequence[Any]) -> None:
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing is left of another round."""


async def test_a_refused_meter_holds_back_the_answers_to_unserved_ports_alone() -> None:
    facts, _ = world(WEB)
    switch, meters = Switch(), Switch()
    engine = Engine(facts, FEATURE.units, {Flow: switch, Meter: meters})
    running = asyncio.create_task(engine.run())
    try:
        async with asyncio.timeout(30):
            await engine.quiet()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    tables = {one.table for one in switch.flows}
    assert {"SessionAffinity", "ServiceLB", "PreRoutingClassifier"} <= tables
    assert not [one for one in switch.flows if any("meter" in action for action in one.actions)]
    assert "OFPMMFC_INVALID_METER" in str(engine.errors.standing)
