"""Who asks for something anew gets a run that began after he had asked, and shares it with others."""

from __future__ import annotations

import asyncio

import pytest
from certificate_world import api_server, until

from antrea.controller.apiserver.process import Publisher
from antrea.controller.apiserver.single_flight import SingleFlight
from antrea.controller.compute.runtime import Computation, active
from antrea.controller.leader.replica import Replica
from antrea.engine import Facts
from antrea.errors import Unavailable


class Work:
    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.gate = asyncio.Event()
        self.trouble = ""

    async def run(self) -> None:
        self.begun += 1
        await self.gate.wait()
        self.ended += 1
        if self.trouble:
            raise Unavailable(self.trouble)


async def test_who_asks_during_a_run_gets_the_next_one_with_all_others_who_do() -> None:
    work = Work()
    flight = SingleFlight(work.run)
    first = asyncio.create_task(flight.run())
    await until(lambda: work.begun == 1)
    later = [asyncio.create_task(flight.run()) for _ in range(5)]
    await asyncio.sleep(0)
    assert work.begun == 1
    later.pop().cancel()
    work.gate.set()
    await asyncio.gather(first, *later)
    assert (work.begun, work.ended) == (2, 2)


async def test_a_run_that_fails_is_told_and_the_next_one_is_another() -> None:
    work = Work()
    flight = SingleFlight(work.run)
    work.gate.set()
    work.trouble = "no API server"
    with pytest.raises(Unavailable, match="no API server"):
        await flight.run()
    work.trouble = ""
    await flight.run()
    assert work.ended == 2


async def test_a_computation_is_not_caught_up_while_it_cannot_watch() -> None:
    async with api_server({}) as (_, kube):
        computation = Computation(active(("Egress",)), Facts(), Replica(kube), Publisher.__new__(Publisher))
        feed = next(iter(computation._feeds.values()))
        feed.trouble = "connection refused"
        with pytest.raises(Unavailable, match="is not watched now: connection refused"):
            await computation.caught_up()
