"""What the switch refuses of a rule that forbids closes its Pods until it takes it, without a gap in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from policy_world import (
    PIPELINE,
    addresses,
    applied,
    engine_of,
    interface,
    member,
    native,
    peer,
    rule,
)

from antrea.agent.unrealized_feed import follow
from antrea.engine import Engine, Pace
from antrea.errors import Refused
from antrea.facts.node import ThisNode
from antrea.features.network_policy.agent.feature import FEATURE
from antrea.openflow.flow import Flow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
SHUT = "table=AntreaPolicyIngressRule,priority=64989,reg1=0x7 actions=drop"
TARGET = "reg1=0x7 actions=conjunction"


class Switch:
    """Refuses flows with a part, and notes what stands, call by call."""

    def __init__(self) -> None:
        self.refuses = TARGET
        self.tries = 0
        self.stands: set[str] = set()
        self.history: list[bool] = []
        """Whether the Pod was shut, after each call."""

    async def apply(self, put: Sequence[Flow], drop: Sequence[Flow]) -> None:
        if self.refuses and (no := [one for one in put if self.refuses in one.named(PIPELINE)]):
            self.tries += 1
            raise Refused(no, "too long")
        self.stands |= {one.named(PIPELINE) for one in put}
        self.stands -= {one.named(PIPELINE) for one in drop}
        self.history.append(SHUT in self.stands)

    async def resync(self, entries: Sequence[Flow]) -> None:
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing is left of an earlier start."""


async def until(condition: Callable[[], bool], engine: Engine) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await engine.moved()


async def test_the_pod_is_shut_from_the_refusal_until_the_rule_stands() -> None:
    facts, _ = engine_of(V4, interface("web", 7, "10.10.0.7"), *applied("g", member("web")))
    for row in addresses("peers", member("far", "10.10.1.5")):
        facts.put(row)
    switch = Switch()
    engine = Engine(facts, FEATURE.units, {Flow: switch}, pace=Pace(first=0.01))
    tasks = [asyncio.create_task(engine.run()), asyncio.create_task(follow(engine, facts))]
    try:
        facts.put(native("p", "g", rule("In", peer("peers"), action="Drop")))
        await until(lambda: SHUT in switch.stands, engine)
        shut, tries = len(switch.history), switch.tries
        await until(lambda: switch.tries > tries + 2, engine)
        assert all(switch.history[shut:])
        switch.refuses = ""
        await until(lambda: SHUT not in switch.stands, engine)
        assert any(TARGET in line for line in switch.stands)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
