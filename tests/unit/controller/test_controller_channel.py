"""What the two processes of the controller say to each other: publications into stores, questions and their answers."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antrea.apis.controlplane import AppliedToGroup, GroupMember, NetworkPolicy, PodReference
from antrea.apis.controlplane_report import (
    Entity,
    NetworkPolicyEvaluation,
    NetworkPolicyEvaluationRequest,
    NetworkPolicyStatus,
)
from antrea.apis.meta import ObjectMetadata, Status
from antrea.controller.apiserver import ipc
from antrea.controller.apiserver.leader_proxy import LeaderState
from antrea.controller.apiserver.process import Publisher, answer, publish_empty
from antrea.controller.apiserver.store_sync import ROWS, ComputeClient, apply, kind_of
from antrea.engine import Engine, Facts
from antrea.errors import Unavailable
from antrea.features.network_policy.controller.group_query import READS
from antrea.features.network_policy.controller.kube_policy import KubePolicy
from antrea.features.registry.api_resources import RESOURCES
from antrea.features.registry.query import ANSWERS
from antrea.outside.apiserver.objects import Objects, Question
from antrea.outside.apiserver.status import ApiError
from antrea.outside.http.liveness_probe import LivenessProbe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CP = "controlplane.antrea.io"


@asynccontextmanager
async def channels() -> AsyncIterator[tuple[ipc.Channel, ipc.Channel]]:
    ends = [ipc.Channel(*await asyncio.open_unix_connection(sock=one)) for one in socket.socketpair()]
    try:
        yield ends[0], ends[1]
    finally:
        for end in ends:
            end.close()


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Publisher, Objects, ComputeClient, ipc.Channel]]:
    """A front's stores, fed and answered over a real socket pair."""
    async with channels() as (ours, theirs):
        computing = ComputeClient(theirs)
        objects = Objects(RESOURCES, computing)
        tasks = [
            asyncio.ensure_future(apply(theirs, objects, computing, LeaderState(elected=False))),
            asyncio.ensure_future(answers(ours)),
        ]
        try:
            yield Publisher(ours), objects, computing, ours
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def answers(channel: ipc.Channel) -> None:
    while True:
        frame = await channel.receive()
        if isinstance(frame, ipc.GetMetrics):
            channel.send(ipc.MetricsResult(frame.number, "antrea_computed 1\n"))
        elif isinstance(frame, ipc.CatchUp):
            channel.send(ipc.CaughtUp(frame.number, "" if frame.number == 1 else "too late"))
        else:
            channel.send(answer(empty(), frame))


def empty() -> Facts:
    """All has been listed, and there is nothing."""
    facts = Facts()
    facts.synced(KubePolicy)
    for kind in READS:
        facts.synced(kind)
    Engine(facts, ()).plan()
    return facts


async def settled(objects: Objects, resource: str) -> Any:
    store = objects.stores[CP, resource]
    told = asyncio.Event()
    store.when_synced(told.set)
    async with asyncio.timeout(60):
        await told.wait()
    return store


def member(name: str) -> GroupMember:
    return GroupMember(pod=PodReference(name=name), ips=(bytes(16),))


async def test_channel_a_computing_process_that_does_not_hear_is_noticed_and_so_is_one_that_hears_again() -> (
    None
):
    async with channels() as (ours, theirs):
        computing = ComputeClient(theirs)
        pulse = LivenessProbe("it", partial(computing.probe, 0.01), period=0.001)
        hears = asyncio.ensure_future(
            apply(theirs, Objects(RESOURCES, computing), computing, LeaderState(elected=False))
        )
        knocks = asyncio.ensure_future(pulse.run())
        try:
            async with asyncio.timeout(60):
                while not pulse.trouble:
                    await ours.receive()
                assert pulse.trouble == "the controller has not answered within 0.01 s"
                while pulse.trouble:
                    ours.send(ipc.Pong((await ours.receive()).number))
        finally:
            for task in (hears, knocks):
                task.cancel()
            await asyncio.gather(hears, knocks, return_exceptions=True)


async def test_channel_what_is_published_is_in_the_store_member_by_member() -> None:
    meta = ObjectMetadata(name="g", uid="u")
    async with connected() as (publisher, objects, _, _):
        publisher.put(
            CP, "appliedtogroups", "g", AppliedToGroup(metadata=meta, group_members=(member("a"), member("b"))),
            span=["n1", "n2"], places=["n1", "n2"],
        )  # fmt: skip
        publisher.change(
            CP, "appliedtogroups", "g", added=[(member("c"), "n1")], removed=[(member("b"), "n2")]
        )
        publisher.put(CP, "networkpolicies", "p", NetworkPolicy(metadata=ObjectMetadata(name="p")))
        publisher.drop(CP, "networkpolicies", "p")
        await publisher.drained()
        publish_empty(publisher)
        store = await settled(objects, "appliedtogroups")
        ((found, rest),) = store.objects()
        assert found.group_members == (member("a"), member("c"))
        assert json.loads(b"{" + rest)["metadata"] == {"name": "g", "uid": "u"}
        assert len(await settled(objects, "networkpolicies")) == 0
        assert all(store.synced for store in objects.stores.values())


async def test_channel_every_store_hears_what_is_processed_after_what_was_published_before() -> None:
    async with connected() as (publisher, objects, _, _):
        publisher.put(CP, "networkpolicies", "p", NetworkPolicy(metadata=ObjectMetadata(name="p")))
        publisher.processed("n1", 7)
        publish_empty(publisher)
        store = await settled(objects, "networkpolicies")
        assert len(store) == 1
        assert all(one._processed == {"n1": 7} for one in objects.stores.values())


def question(resource: str, verb: str = "get", name: str = "x", **more: Any) -> Question:
    (row,) = (row for row in RESOURCES if row.plural == resource)
    return Question(row.group, resource, more.pop("subresource", ""), verb, "", name, **more)


async def test_channel_questions_are_answered_by_who_computes() -> None:
    end = Entity(pod=PodReference(name="a", namespace="b"))
    asked = NetworkPolicyEvaluation(request=NetworkPolicyEvaluationRequest(source=end, destination=end))
    status = NetworkPolicyStatus(metadata=ObjectMetadata(name="x"))
    async with connected() as (_, _, computing, _):
        for given, expected in (
            (question("networkpolicyevaluation", "create", body=asked), asked),
            (
                question("networkpolicies", "create", subresource="status", body=status),
                Status(status="Success", code=201),
            ),
        ):
            assert await computing.answer(given) == expected


async def test_channel_metrics_of_the_computing_process_are_told() -> None:
    async with connected() as (_, _, computing, _):
        assert await computing.metrics() == "antrea_computed 1\n"


async def test_channel_the_front_hears_whether_the_stores_are_up_to_date() -> None:
    async with connected() as (_, _, computing, _):
        await computing.catch_up()
        with pytest.raises(Unavailable, match="too late"):
            await computing.catch_up()


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (
            question("networkpolicyevaluation", "create", body=NetworkPolicyEvaluation()),
            400,
            "request entities",
        ),
        (question("clustergroupmembers"), 404, 'clustergroupmembers.controlplane.antrea.io "x" not found'),
        (question("clustergroupmembers", query={"page": "-1"}), 400, "invalid page number"),
        (question("ipgroupassociations"), 400, "IP x is not a valid IP address"),
        (question("groupmembers", "delete"), 503, "delete groupmembers is not built yet"),
    ],
)
async def test_channel_a_no_comes_through_with_its_words(given: Question, code: int, words: str) -> None:
    async with connected() as (_, _, computing, _):
        with pytest.raises(ApiError) as no:
            await computing.answer(given)
        assert (no.value.status.code, words in no.value.status.message) == (code, True)


def test_channel_a_bug_in_an_answer_is_an_answer() -> None:
    broken = ipc.Query(7, CP, "networkpolicyevaluation", "", "create", "", "x", {}, ipc.raw(ObjectMetadata()))
    without = ipc.Query(8, CP, "networkpolicyevaluation", "", "create", "", "x")
    assert answer(Facts(), broken).number == 7
    found = answer(Facts(), without)
    assert msgspec.msgpack.decode(found.body, type=Status).code == 500


def test_channel_every_question_that_can_be_asked_has_an_answer() -> None:
    asked = {(row.plural, "", verb) for row in RESOURCES if not row.stored for verb in row.verbs} | {
        (row.plural, part.name, verb) for row in RESOURCES for part in row.subresources for verb in part.verbs
    }
    # the front collects support bundles itself, and adds up statistics
    own = ("supportbundles", "nodestatssummaries")
    assert {one for one in asked if one[0] not in own} == set(ANSWERS)
    assert kind_of(ROWS[CP, "networkpolicies"], "status") is NetworkPolicyStatus


async def test_channel_the_end_of_the_other_process_is_heard() -> None:
    async with channels() as (ours, theirs):
        ours.close()
        with pytest.raises(Unavailable, match="the other process has ended"):
            await theirs.receive()
