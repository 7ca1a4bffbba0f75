"""How many jobs wait and how long they take, as metrics show it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec
from engine_world import QUICK, Flow, Pod, Route

from antrea.engine import Engine, Facts, Unit
from antrea.engine.core.workload import BOUNDS, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_world import Run

BREATHING = msgspec.structs.replace(QUICK, slice=0.0)
"""Pauses after each job."""


def pod_flow(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Flow(pod.name)


def pod_route(facts: Facts, pod: Pod) -> Iterator[Any]:
    yield Route(pod.name)


def slow_flows(facts: Facts, pod: Pod) -> Iterator[Any]:
    began = time.perf_counter()
    while time.perf_counter() - began < 0.003:
        pass
    for number in range(100):
        yield Flow(f"{number}")


async def test_jobs_are_counted_by_what_their_unit_is_measured_as_while_they_wait_and_once_they_ran(
    world: Run,
) -> None:
    units = (Unit(Pod, pod_flow, measured_as=("flows", "all")), Unit(Pod, pod_route, measured_as=("all",)))
    w = world(units, start=False, pace=BREATHING)
    waiting: set[tuple[int, int]] = set()

    async def sample() -> None:
        while True:
            found = w.engine.workloads()
            waiting.add((found["flows"].waiting, found["all"].waiting))
            await asyncio.sleep(0)

    for number in range(4):
        w.facts.put(Pod(f"p{number}"))
    sampling = asyncio.create_task(sample())
    w.start()
    await w.engine.quiet()
    sampling.cancel()
    # one after the other, the jobs of one unit before those of the other
    assert waiting >= {(3, 7), (2, 6), (1, 5), (0, 4), (0, 3), (0, 2), (0, 1), (0, 0)}
    ran = {name: sum(one.counts) for name, one in w.engine.workloads().items()}
    w.facts.put(Pod("p0", 2))
    w.facts.drop(Pod, "p1")
    await w.engine.quiet()
    again = {name: sum(one.counts) for name, one in w.engine.workloads().items()}
    assert (ran, again) == ({"flows": 4, "all": 8}, {"flows": 6, "all": 12})


async def test_the_time_that_a_job_takes_has_no_pauses_in_it(world: Run) -> None:
    async def hold() -> None:
        while not sum(w.engine.workloads()["flows"].counts):
            time.sleep(0.2)  # noqa: ASYNC251 (others keep the event loop)
            await asyncio.sleep(0)

    w = world((Unit(Pod, slow_flows, measured_as=("flows",)),), pace=BREATHING)
    holding = asyncio.create_task(hold())
    w.facts.put(Pod("a"))
    await w.engine.quiet()
    holding.cancel()
    found = w.engine.workloads()["flows"]
    assert 3 <= found.milliseconds < 200
    assert (sum(found.counts), sum(found.counts[: BOUNDS.index(2.5) + 1])) == (1, 0)


def test_each_duration_is_in_the_first_bucket_that_it_fits() -> None:
    found = Workload()
    for milliseconds in (0.001, 0.005, 0.02, 10, 11, 12, 20_000):
        found.note(milliseconds / 1000)
    assert found.counts == [2, 0, 1, *[0] * 7, 1, 2, *[0] * 8, 1]
    assert round(found.milliseconds, 3) == 20033.026


def test_jobs_of_other_units_are_not_measured() -> None:
    facts = Facts()
    engine = Engine(facts, [Unit(Pod, pod_flow)])
    facts.put(Pod("a"))
    engine.plan()
    assert engine.workloads() == {}
