"""The API server process's end of the channel: publications go into stores, queries go out, responses come back."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.controlplane import GroupMember
from antrea.apis.meta import Status
from antrea.controller.apiserver import ipc
from antrea.errors import Unavailable
from antrea.features.registry.api_resources import RESOURCES
from antrea.outside.apiserver.status import NO_RESOURCE, ApiError, missing

if TYPE_CHECKING:
    from antrea.apis.resource import Resource
    from antrea.controller.apiserver.connected_agents import ConnectedAgents
    from antrea.controller.apiserver.leader_proxy import LeaderProxy, LeaderState
    from antrea.outside.apiserver.objects import Objects, Question

ANSWER_SECONDS = 30.0
METRICS_SECONDS = 2.0
CATCH_UP_SECONDS = 10.0
PROBE_SECONDS = 60.0
"""For what costs nothing to answer: it computes in steps of less than a tenth of a second."""
MAX_QUERIES = 1000
"""Maximum number of queries that wait for an answer."""
AGENTS_SECONDS = 1.0
SLICE = 200
"""Publications applied before others have their turn."""
ROWS: dict[tuple[str, str], Resource] = {(row.group, row.plural): row for row in RESOURCES}


def kind_of(row: Resource, subresource: str) -> type[Any]:
    """The struct of what is posted to a resource or a part of it."""
    parts = {part.name: part.kind for part in row.subresources}
    return parts[subresource] if subresource else row.struct


class ComputeClient:
    """Sends queries to the compute process, and waits for the responses."""

    def __init__(self, channel: ipc.Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def answer(self, question: Question) -> msgspec.Struct:
        """Raises Answered for refusals, Unavailable if no answer comes in time."""
        if len(self._waiting) >= MAX_QUERIES:
            raise ApiError(429, "too many requests wait for the controller, try again")
        row = ROWS[question.group, question.resource]
        number = next(self._numbers)
        posted = question.body
        ask = ipc.Query(
            number,
            question.group,
            question.resource,
            question.subresource,
            question.verb,
            question.namespace,
            question.name,
            dict(question.query),
            ipc.raw(posted) if posted is not None else ipc.NOTHING,
        )
        answer: ipc.QueryResult = await self._reply(number, ask, ANSWER_SECONDS)
        if answer.body == ipc.NOTHING:
            raise missing(row, question.name)
        if not answer.is_status:
            shown: msgspec.Struct = msgspec.msgpack.decode(answer.body, type=row.struct)
            return shown
        status = msgspec.msgpack.decode(answer.body, type=Status)
        if status.status == "Failure":
            raise ApiError(status.code, status.message, status.details)
        return status

    async def metrics(self) -> str:
        """Return the metrics of the other process. Raises Unavailable if they do not arrive in time."""
        number = next(self._numbers)
        result: ipc.MetricsResult = await self._reply(number, ipc.GetMetrics(number), METRICS_SECONDS)
        return result.text

    async def catch_up(self) -> None:
        """Wait until stores hold everything that kube-apiserver has delivered by now. Raises Unavailable."""
        number = next(self._numbers)
        caught_up: ipc.CaughtUp = await self._reply(number, ipc.CatchUp(number), CATCH_UP_SECONDS)
        if caught_up.why:
            raise Unavailable(caught_up.why)

    async def probe(self, seconds: float = PROBE_SECONDS) -> None:
        """Wait for a Pong of the compute process. Raises Unavailable if none comes in time."""
        number = next(self._numbers)
        await self._reply(number, ipc.Ping(number), seconds)

    async def _reply(self, number: int, question: ipc.Frame, seconds: float) -> Any:
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._channel.send(question)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError as error:
            raise Unavailable(f"the controller has not answered within {seconds:g} s") from error
        finally:
            del self._waiting[number]

    def resolve(self, answer: ipc.Reply) -> None:
        """Hand a response to its caller, if that still waits."""
        future = self._waiting.get(answer.number)
        if future is not None and not future.done():
            future.set_result(answer)


async def apply(
    channel: ipc.Channel, objects: Objects, computing: ComputeClient, leading: LeaderState
) -> None:
    """Receive until the channel ends. Raises Unavailable then."""
    for count in itertools.count(1):
        frame = await channel.receive()
        if isinstance(frame, ipc.Reply):
            computing.resolve(frame)
        elif isinstance(frame, ipc.Leader):
            leading.follow(frame)
        elif isinstance(frame, ipc.Processed):
            for store in objects.stores.values():
                store.processed(frame.node, frame.version)
        else:
            publish(objects, frame)
        if count % SLICE == 0:
            # frames that have come already would be heard without letting watches send theirs
            await asyncio.sleep(0)


def publish(objects: Objects, frame: ipc.Put | ipc.Change | ipc.Drop | ipc.Synced) -> None:
    """Put one publication into its store. Raises Answered (a bug) for a resource without one."""
    store = objects.stores.get((frame.group, frame.resource))
    if store is None:
        raise ApiError(404, NO_RESOURCE)
    if isinstance(frame, ipc.Put):
        value = msgspec.msgpack.decode(frame.body, type=store.resource.struct)
        store.put(frame.key, value, frozenset(frame.span), frame.places)
    elif isinstance(frame, ipc.Change):
        added, removed = (
            [(msgspec.msgpack.decode(member, type=GroupMember), place) for member, place in placed]
            for placed in (frame.added, frame.removed)
        )
        span = None if frame.span is None else frozenset(frame.span)
        store.change(frame.key, added=added, removed=removed, span=span)
    elif isinstance(frame, ipc.Drop):
        store.drop(frame.key)
    else:
        store.sync()


async def follow_agents(
    channel: ipc.Channel, objects: Objects, connected: ConnectedAgents, forward: LeaderProxy
) -> None:
    """Send the number of connected agents, here and at other replicas, to the compute process when it changes.

    Upstream counts those that watch AppliedToGroups, which all of its agents do.
    """
    reported = -1
    while True:
        connected.own = len(frozenset().union(*(store.nodes for store in objects.stores.values())))
        await forward.report_number(connected)
        number = connected.total()
        if number != reported:
            reported = number
            channel.send(ipc.AgentCount(number))
        await asyncio.sleep(AGENTS_SECONDS)
