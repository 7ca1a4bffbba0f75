"""The front's side of the channel: publications go into stores, questions go out, answers come back."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.controlplane import GroupMember
from antrea.apis.meta import Status
from antrea.controller import wire
from antrea.errors import Unavailable
from antrea.features.registry import RESOURCES
from antrea.outside.aggregated.status import NO_RESOURCE, Answered, missing

if TYPE_CHECKING:
    from antrea.apis.resource import Resource
    from antrea.controller.crowd import Crowd
    from antrea.controller.forward import Forward, Leading
    from antrea.outside.aggregated.objects import Objects, Question

ANSWER_SECONDS = 30.0
METRICS_SECONDS = 2.0
CATCH_UP_SECONDS = 10.0
HEARD_SECONDS = 60.0
"""For what costs nothing to answer: it computes in steps of less than a tenth of a second."""
MOST_QUESTIONS = 1000
"""That wait for an answer at a time."""
AGENTS_SECONDS = 1.0
SLICE = 200
"""Publications applied before others have their turn."""
ROWS: dict[tuple[str, str], Resource] = {(row.group, row.plural): row for row in RESOURCES}


def kind_of(row: Resource, subresource: str) -> type[Any]:
    """The struct of what is posted to a resource or a part of it."""
    parts = {part.name: part.kind for part in row.subresources}
    return parts[subresource] if subresource else row.struct


class Computing:
    """Asks the other process, and waits for its answers."""

    def __init__(self, channel: wire.Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def answer(self, question: Question) -> msgspec.Struct:
        """Raises Answered for refusals, Unavailable if no answer comes in time."""
        if len(self._waiting) >= MOST_QUESTIONS:
            raise Answered(429, "too many requests wait for the controller, try again")
        row = ROWS[question.group, question.resource]
        number = next(self._numbers)
        found = question.found
        ask = wire.Ask(
            number,
            question.group,
            question.resource,
            question.subresource,
            question.verb,
            question.namespace,
            question.name,
            dict(question.query),
            wire.raw(found) if found is not None else wire.NOTHING,
        )
        answer: wire.Answer = await self._reply(number, ask, ANSWER_SECONDS)
        if answer.found == wire.NOTHING:
            raise missing(row, question.name)
        if not answer.is_status:
            shown: msgspec.Struct = msgspec.msgpack.decode(answer.found, type=row.struct)
            return shown
        status = msgspec.msgpack.decode(answer.found, type=Status)
        if status.status == "Failure":
            raise Answered(status.code, status.message, status.details)
        return status

    async def metrics(self) -> str:
        """Of the other process. Raises Unavailable if none come in time."""
        number = next(self._numbers)
        found: wire.Measured = await self._reply(number, wire.Measure(number), METRICS_SECONDS)
        return found.text

    async def catch_up(self) -> None:
        """Returns when stores hold all that the API server has told by now. Raises Unavailable."""
        number = next(self._numbers)
        found: wire.CaughtUp = await self._reply(number, wire.CatchUp(number), CATCH_UP_SECONDS)
        if found.why:
            raise Unavailable(found.why)

    async def knock(self, seconds: float = HEARD_SECONDS) -> None:
        """Returns when the other process has heard. Raises Unavailable if it does not in time."""
        number = next(self._numbers)
        await self._reply(number, wire.Knock(number), seconds)

    async def _reply(self, number: int, question: wire.Frame, seconds: float) -> Any:
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._channel.say(question)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError as why:
            raise Unavailable(f"the controller has not answered within {seconds:g} s") from why
        finally:
            del self._waiting[number]

    def take(self, answer: wire.Reply) -> None:
        """An answer has come; nobody may wait for it any more."""
        future = self._waiting.get(answer.number)
        if future is not None and not future.done():
            future.set_result(answer)


async def apply(channel: wire.Channel, objects: Objects, computing: Computing, leading: Leading) -> None:
    """Hear until the channel ends. Raises Unavailable then."""
    for count in itertools.count(1):
        frame = await channel.hear()
        if isinstance(frame, wire.Reply):
            computing.take(frame)
        elif isinstance(frame, wire.Leader):
            leading.tell(frame)
        elif isinstance(frame, wire.Processed):
            for store in objects.stores.values():
                store.processed(frame.node, frame.version)
        else:
            publish(objects, frame)
        if count % SLICE == 0:
            # frames that have come already would be heard without letting watches send theirs
            await asyncio.sleep(0)


def publish(objects: Objects, frame: wire.Put | wire.Change | wire.Drop | wire.Synced) -> None:
    """Put one publication into its store. Raises Answered (a bug) for a resource without one."""
    store = objects.stores.get((frame.group, frame.resource))
    if store is None:
        raise Answered(404, NO_RESOURCE)
    if isinstance(frame, wire.Put):
        found = msgspec.msgpack.decode(frame.found, type=store.resource.struct)
        store.put(frame.key, found, frozenset(frame.span), frame.places)
    elif isinstance(frame, wire.Change):
        added, removed = (
            [(msgspec.msgpack.decode(one, type=GroupMember), place) for one, place in placed]
            for placed in (frame.added, frame.removed)
        )
        span = None if frame.span is None else frozenset(frame.span)
        store.change(frame.key, added=added, removed=removed, span=span)
    elif isinstance(frame, wire.Drop):
        store.drop(frame.key)
    else:
        store.sync()


async def follow_agents(channel: wire.Channel, objects: Objects, crowd: Crowd, forward: Forward) -> None:
    """Tell the other process how many Nodes watch something, here and at other replicas, when that changes.

    Upstream counts those that watch AppliedToGroups, which all of its agents do.
    """
    told = -1
    while True:
        crowd.own = len(frozenset().union(*(store.nodes for store in objects.stores.values())))
        await forward.tell_number(crowd)
        number = crowd.total()
        if number != told:
            told = number
            channel.say(wire.Agents(number))
        await asyncio.sleep(AGENTS_SECONDS)
