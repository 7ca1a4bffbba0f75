"""Starts the front, publishes to it and answers its questions: the computing process's side of the channel."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.meta import Status
from antrea.controller import wire
from antrea.controller.stores import ROWS, kind_of
from antrea.errors import Invalid, Refused, Unavailable
from antrea.features.answer import ANSWERS, Asked
from antrea.features.registry import RESOURCES
from antrea.outside import klog
from antrea.outside.metrics import measured

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from antrea.engine import Facts

log = klog.logger(__name__)

START_SECONDS = 60.0
END_SECONDS = 10.0
"""More than the front needs for its farewell and for what it is answering."""


class Publisher:
    """What feeds and sinks say to the stores of the front; resources are named as in the registry."""

    def __init__(self, channel: wire.Channel) -> None:
        self._channel = channel

    def put(
        self, group: str, resource: str, key: str, found: Any, *,
        span: Iterable[str] = (), places: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`found` is what there is now, and the Nodes `span` need it; `places`: the Node of each member of a group."""
        self._channel.say(wire.Put(group, resource, key, wire.raw(found), tuple(span), tuple(places)))

    def change(
        self, group: str, resource: str, key: str, *,
        added: Iterable[tuple[Any, str]], removed: Iterable[tuple[Any, str]] = (),
        span: Iterable[str] | None = None,
    ) -> None:  # fmt: skip
        """Members of a group came and went, each with its Node; `span` None: as it was."""
        self._channel.say(
            wire.Change(
                group,
                resource,
                key,
                tuple((wire.raw(member), place) for member, place in added),
                tuple((wire.raw(member), place) for member, place in removed),
                None if span is None else tuple(span),
            )
        )

    def drop(self, group: str, resource: str, key: str) -> None:
        """The object is gone."""
        self._channel.say(wire.Drop(group, resource, key))

    def synced(self, group: str, resource: str) -> None:
        """A whole pass has been published: watches may begin."""
        self._channel.say(wire.Synced(group, resource))

    def processed(self, node: str, version: int) -> None:
        """All about the Pods of this Node, up to this resourceVersion, has been said."""
        self._channel.say(wire.Processed(node, version))

    def leader(self, address: str, *, own: bool) -> None:
        """How the election stands: this replica leads, or the one at `address`, or none."""
        self._channel.say(wire.Leader(own, address))

    async def drained(self) -> None:
        """Until the front has taken most of what was said."""
        await self._channel.drained()


class FrontProcess:
    """The child process, from `start` to `stop`."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.agents = 0
        """How many watch AppliedToGroups."""
        self.changed: Callable[[], None] = _nobody
        """Called when `agents` changed."""
        self.metrics: Callable[[], str] = str
        """What this process counts, in Prometheus' format."""
        self.catch_up: Callable[[], Awaitable[None]] = _nothing_is_late
        """Returns when all that the API server has told was published. Raises Unavailable, Refused."""
        self._turns: set[asyncio.Task[None]] = set()

    async def start(self, start: wire.Start) -> Publisher:
        """Returns when it serves. Raises Unavailable, Invalid in the front's own words."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undone:
            self._channel = wire.Channel(*await asyncio.open_unix_connection(sock=ours))
            undone.callback(self._channel.close)
            command = [sys.executable, "-m", "antrea.controller.front", str(theirs.fileno())]
            self._process = await asyncio.create_subprocess_exec(*command, pass_fds=(theirs.fileno(),))
            undone.pop_all()
        try:
            self.port: int = await self._served(start)
        except BaseException:
            # cancelled, too: a process that is left behind keeps its port
            await self.stop()
            raise
        return Publisher(self._channel)

    async def _served(self, start: wire.Start) -> int:
        """The port. Raises Unavailable, Invalid."""
        self._channel.say(start)
        try:
            async with asyncio.timeout(START_SECONDS):
                first = await self._channel.hear()
        except (TimeoutError, Unavailable) as why:
            raise Unavailable(f"the serving process has not started: {why}") from why
        if isinstance(first, wire.Failed):
            raise _error(first)
        port: int = first.port
        return port

    @property
    def pid(self) -> int:
        """Of the process that serves."""
        return self._process.pid

    async def run(self) -> None:
        """Answer questions until cancelled. Raises Unavailable when the front has ended, Invalid in its words."""
        while True:
            try:
                frame = await self._channel.hear()
            except Unavailable as why:
                code = await self._process.wait()
                raise Unavailable(f"the serving process has ended with status {code}") from why
            if isinstance(frame, wire.Ask):
                self._channel.say(answer(self._facts, frame))
            elif isinstance(frame, wire.CatchUp):
                self._turns.add(turn := asyncio.create_task(self._catch_up(frame.number)))
                turn.add_done_callback(self._turns.discard)
            elif isinstance(frame, wire.Knock):
                self._channel.say(wire.Heard(frame.number))
            elif isinstance(frame, wire.Measure):
                self._channel.say(wire.Measured(frame.number, self.metrics() + measured()))
            elif isinstance(frame, wire.Agents):
                self.agents = frame.number
                self.changed()
            elif isinstance(frame, wire.Level):
                klog.set_verbosity(frame.verbosity)
            elif isinstance(frame, wire.Failed):
                raise _error(frame)

    async def _catch_up(self, number: int) -> None:
        why = ""
        try:
            await self.catch_up()
        except (Unavailable, Refused) as no:
            why = str(no)
        self._channel.say(wire.CaughtUp(number, why))

    async def stop(self) -> None:
        """Close the channel, and end the process if it does not end by itself."""
        self._channel.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
                return
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


def _error(failed: wire.Failed) -> Invalid | Unavailable:
    """In the front's own words."""
    return Invalid(failed.path, failed.why) if failed.path else Unavailable(failed.why)


def answer(facts: Facts, ask: wire.Ask) -> wire.Answer:
    """The answer of the feature that the question is for; a bug is an answer, too, and a line in the log."""
    row = ROWS[ask.group, ask.resource]
    rule = ANSWERS.get((ask.resource, ask.subresource, ask.verb))
    try:
        if rule is None:
            raise Unavailable(f"{ask.verb} {ask.resource} is not built yet")
        found = None
        if ask.found != wire.NOTHING:
            found = msgspec.msgpack.decode(ask.found, type=kind_of(row, ask.subresource))
        shown = rule(facts, Asked(ask.namespace, ask.name, ask.query, found))
    except Invalid as no:
        shown = _failure(400, "BadRequest", no.why)
    except (Unavailable, Refused) as no:
        shown = _failure(503, "ServiceUnavailable", str(no))
    except Exception as bug:
        log.error("A question cannot be answered", error=bug, resource=ask.resource, verb=ask.verb)
        shown = _failure(500, "InternalError", "Internal error occurred")
    if shown is None:
        return wire.Answer(ask.number)
    return wire.Answer(ask.number, wire.raw(shown), is_status=isinstance(shown, Status))


def _failure(code: int, reason: str, message: str) -> Status:
    return Status(status="Failure", message=message, reason=reason, code=code)


def publish_empty(publisher: Publisher, *, but: Collection[str] = ()) -> None:
    """Let watches begin on what nobody computes, which is all `but` these plurals: it is empty, and that is the truth."""
    for row in RESOURCES:
        if row.stored and row.plural not in but:
            publisher.synced(row.group, row.plural)


async def _nothing_is_late() -> None:
    """Nothing is computed."""


def _nobody() -> None:
    """Nobody wants to know."""
