"""Traceflows begin and end, 64 at once too, while agents write into the same statuses, and whoever leads."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from certificate_world import ApiServer, api_server

from antrea.apis.crd.traceflow import NodeResult, Observation, Traceflow, TraceflowSpec
from antrea.config.controller import ControllerConfig
from antrea.engine import Facts
from antrea.facts.cluster import Pod
from antrea.features.framework.controller_part import ControllerContext
from antrea.features.traceflow.agent_part.part import ResultWriter
from antrea.features.traceflow.controller_part import TraceflowPart
from antrea.features.traceflow.trace import (
    ALL_TRACES,
    RUNNING_TRACES,
    TAGS,
    TRACEFLOWS,
    RunningTrace,
    TraceRow,
)
from antrea.outside.kube.leadership import Leadership
from antrea.outside.kube.resource_feed import ResourceFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from antrea.outside.kube.client import Kube

SENT = Observation(component="SpoofGuard", action="Forwarded", src_pod_ip="10.10.0.7")
CHOSEN = Observation(component="LB", action="Forwarded", translated_dst_ip="10.10.1.9")
ARRIVED = Observation(component="Forwarding", action="Delivered")
SENDER = Pod("a", "web", "l", node="n1", ips=("10.10.0.7",))
POD = Pod("shop", "web", "l", node="n2", ips=("10.10.1.9",))


def trace(number: int, **more: Any) -> dict[str, Any]:
    spec = {"source": {"namespace": "a", "pod": "web"}, "destination": {"ip": "10.96.0.10"}}
    meta = {"uid": f"u{number}", "creationTimestamp": f"2027-01-15T08:00:{number % 60:02}Z"}
    return {"metadata": meta, "spec": spec | more}


def statuses(server: ApiServer) -> list[dict[str, Any]]:
    return [one.get("status", {}) for one in server.objects.values()]


def phases(server: ApiServer) -> Counter[str]:
    return Counter(one.get("phase", "") for one in statuses(server))


async def until(true: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(60):
            while not true():  # noqa: ASYNC110 (a server has no event)
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None


@contextlib.asynccontextmanager
async def controller(kube: Kube, now: Callable[[], float] = time.time) -> AsyncIterator[Facts]:
    """The part of a leader, and its facts; `now` is its clock."""
    facts = Facts()
    for pod in (POD, SENDER):
        facts.put(pod)
    context = ControllerContext(
        config=ControllerConfig(), gates=frozenset({"Traceflow"}), facts=facts, kube=kube, lead=Leadership(), namespace="kube-system"
    )  # fmt: skip
    feed = ResourceFeed(kube, TRACEFLOWS, Traceflow, rows={TraceRow: ALL_TRACES.row})
    tasks = [
        asyncio.create_task(one) for one in (feed.run(facts), TraceflowPart(context, now).run_while_leading())
    ]
    try:
        yield facts
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def agent(kube: Kube, node: str, *observed: Observation) -> None:
    """One that reports these of every trace that runs."""
    facts, writer, done = Facts(), ResultWriter(kube, node), set[str]()
    feed = ResourceFeed(kube, TRACEFLOWS, Traceflow, rows={RunningTrace: RUNNING_TRACES.row})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(feed.run(facts))
        with facts.watch(RunningTrace) as heard:
            while True:
                heard.clear()
                for row in facts.all(RunningTrace):
                    if row.uid not in done:
                        done.add(row.uid)
                        tasks.create_task(writer.add(row, NodeResult(node, observations=observed), None))
                await heard.wait()


@contextlib.asynccontextmanager
async def agents(kube: Kube) -> AsyncIterator[None]:
    both = [
        asyncio.create_task(agent(kube, "n1", SENT, CHOSEN)),
        asyncio.create_task(agent(kube, "n2", ARRIVED)),
    ]
    try:
        yield
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)


async def test_64_at_once_all_succeed_with_the_results_of_both_nodes_and_14_run_at_a_time() -> None:
    objects = {f"{TRACEFLOWS}/t{number}": trace(number) for number in range(64)}
    most, seen = 0, set[int]()
    async with api_server(objects) as (server, kube):

        def watched() -> bool:
            nonlocal most
            tags = [one["dataplaneTag"] for one in statuses(server) if one.get("phase") == "Running"]
            assert len(tags) == len({*tags})
            seen.update(tags)
            most = max(most, len(tags))
            return phases(server)["Succeeded"] == 64

        async with controller(kube), agents(kube):
            await until(watched, "all have succeeded")
        for status in statuses(server):
            assert sorted(result["node"] for result in status["results"]) == ["n1", "n2"]
            (chosen,) = (
                one
                for result in status["results"]
                for one in result["observations"]
                if one["component"] == "LB"
            )
            assert chosen["pod"] == "shop/web"
            assert "dataplaneTag" not in status
            assert "reason" not in status
    assert most <= 14
    assert seen <= set(TAGS)


async def test_with_agents_away_it_fails_by_its_time_and_the_next_one_has_its_tag() -> None:
    objects = {f"{TRACEFLOWS}/t{number}": trace(number, timeout=1) for number in range(15)}
    began, goes = time.time(), asyncio.Event()
    # a time that begins within a second ends with it, maybe before the last of them has begun
    async with (
        api_server(objects) as (server, kube),
        controller(kube, lambda: time.time() if goes.is_set() else began),
    ):

        def waiting() -> list[str]:
            return [one["reason"] for one in statuses(server) if "reason" in one and not one.get("phase")]

        await until(lambda: phases(server)["Running"] == 14 and waiting(), "14 run and one waits")
        (reason,) = waiting()
        assert reason.startswith("waiting: 14 Traceflows are running")
        goes.set()
        await until(lambda: phases(server)["Failed"] == 15, "all have failed")
        assert {one["reason"] for one in statuses(server)} == {
            "Traceflow timeout: the Node of Pod a/web has not reported the packet"
        }


async def test_tags_rest_no_hour_when_the_clock_is_set_back_by_one() -> None:
    objects = {f"{TRACEFLOWS}/t{number}": trace(number) for number in range(14)}
    ahead = 3600.0
    async with api_server(objects) as (server, kube), controller(kube, lambda: time.time() + ahead):
        async with agents(kube):
            await until(lambda: phases(server)["Succeeded"] == 14, "all tags were used")
        ahead = 0.0
        server.put(f"{TRACEFLOWS}/next", trace(20))
        await until(lambda: phases(server)["Running"] == 1, "the next one runs")


@pytest.mark.parametrize(
    "ends",
    [
        {"source": {"namespace": "a", "pod": "none"}},
        {"destination": {"namespace": "a", "pod": "none"}},
    ],
)
async def test_one_of_a_pod_that_does_not_exist_fails_by_its_time_and_says_so(ends: dict[str, Any]) -> None:
    objects = {f"{TRACEFLOWS}/t": trace(0, timeout=1, **ends)}
    async with api_server(objects) as (server, kube), controller(kube):
        await until(lambda: phases(server)["Failed"] == 1, "it has failed")
        assert statuses(server)[0]["reason"] == "Traceflow timeout: Pod a/none does not exist"


async def test_the_next_leader_goes_on_with_what_runs() -> None:
    async with api_server({f"{TRACEFLOWS}/t0": trace(0)}) as (server, kube):
        async with controller(kube):
            await until(lambda: phases(server)["Running"], "it runs")
        before = statuses(server)[0]
        server.put(f"{TRACEFLOWS}/t1", trace(1))
        async with controller(kube), agents(kube):
            await until(lambda: phases(server)["Succeeded"] == 2, "both have succeeded")
        assert statuses(server)[0]["startTime"] == before["startTime"]


async def test_one_that_is_deleted_or_over_gets_no_result() -> None:
    path = f"{TRACEFLOWS}/t0"
    async with api_server({path: trace(0)}) as (server, kube):
        writer = ResultWriter(kube, "n1")
        row = RunningTrace("t0", "u0", 7, TraceflowSpec())
        for status in ({}, {"phase": "Failed"}, {"phase": "Succeeded"}):
            server.put(path, trace(0) | {"status": status})
            await writer.add(row, NodeResult("n1", observations=(SENT,)), None)
        server.put(path, trace(1) | {"status": {"phase": "Running"}})
        await writer.fail(row, "it is another one")
        server.drop(path)
        await writer.add(row, NodeResult("n1"), None)
        assert server.writes == []


@pytest.mark.parametrize("refused", [403, 500])
async def test_a_status_that_cannot_be_written_is_written_later(refused: int) -> None:
    async with api_server({f"{TRACEFLOWS}/t0": trace(0)}) as (server, kube):
        server.refuse, server.refuse_status = "not now", refused
        async with controller(kube):
            await until(lambda: server.writes, "it has been tried")
            server.refuse = ""
            await until(lambda: phases(server)["Running"], "it runs")
