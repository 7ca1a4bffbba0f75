"""Starts the front, publishes to it and answers its questions: the computing process's side of the channel."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.meta import Status
from antrea.controller.apiserver import ipc
from antrea.controller.apiserver.store_sync import ROWS, kind_of
from antrea.decoding import decode_msgpack
from antrea.errors import Invalid, Refused, Unavailable
from antrea.features.framework.query import Query
from antrea.features.registry.api_resources import RESOURCES
from antrea.features.registry.query import ANSWERS
from antrea.outside.log import klog
from antrea.outside.log.metrics import measured

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from antrea.engine import Facts
    from antrea.outside.listener.listening_socket import SharedListener

log = klog.logger(__name__)

PORT_SECONDS, PORT_PAUSE = 5.0, 0.1
"""How long a start waits for its port, and between tries."""
START_SECONDS = 60.0
END_SECONDS = 10.0
"""More than the front needs for its farewell and for what it is answering."""


class Publisher:
    """Sends publications to the stores of the API server process; resources are named as in the registry."""

    def __init__(self, channel: ipc.Channel) -> None:
        self._channel = channel

    def put(
        self, group: str, resource: str, key: str, value: Any, *,
        span: Iterable[str] = (), places: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Publish the present `value` to the Nodes `span`; `places`: the Node of each member of a group."""
        self._channel.send(ipc.Put(group, resource, key, ipc.raw(value), tuple(span), tuple(places)))

    def change(
        self, group: str, resource: str, key: str, *,
        added: Iterable[tuple[Any, str]], removed: Iterable[tuple[Any, str]] = (),
        span: Iterable[str] | None = None,
    ) -> None:  # fmt: skip
        """Add and remove members of a group, each with its Node; `span` None keeps the span."""
        self._channel.send(
            ipc.Change(
                group,
                resource,
                key,
                tuple((ipc.raw(member), place) for member, place in added),
                tuple((ipc.raw(member), place) for member, place in removed),
                None if span is None else tuple(span),
            )
        )

    def drop(self, group: str, resource: str, key: str) -> None:
        """The object is gone."""
        self._channel.send(ipc.Drop(group, resource, key))

    def synced(self, group: str, resource: str) -> None:
        """A whole pass has been published: watches may begin."""
        self._channel.send(ipc.Synced(group, resource))

    def processed(self, node: str, version: int) -> None:
        """Everything for the Pods of this Node, up to this resourceVersion, was sent."""
        self._channel.send(ipc.Processed(node, version))

    def leader(self, address: str, *, is_self: bool) -> None:
        """How the election stands: this replica leads, or the one at `address`, or none."""
        self._channel.send(ipc.Leader(is_self, address))

    async def drained(self) -> None:
        """Wait until the API server process has taken most of what was sent."""
        await self._channel.drained()


class ApiServerProcess:
    """The child process, from `start` to `stop`."""

    def __init__(self, facts: Facts, listener: SharedListener | None = None) -> None:
        """`listener` listens for it, and for the next one."""
        self._facts = facts
        self._listener = listener
        self.agents = 0
        """How many watch AppliedToGroups."""
        self.changed: Callable[[], None] = _ignore
        """Called when `agents` changed."""
        self.metrics: Callable[[], str] = str
        """Function that returns the metrics of this process in Prometheus' format."""
        self.catch_up: Callable[[], Awaitable[None]] = _nothing_is_late
        """Wait until everything that kube-apiserver has delivered is published. Raises Unavailable, Refused."""
        self._turns: set[asyncio.Task[None]] = set()

    async def start(self, start: ipc.Start) -> Publisher:
        """Returns when it serves. Raises Unavailable, Invalid in the front's own words."""
        with contextlib.ExitStack() as passed:
            listening = (
                passed.enter_context(await self._listening(self._listener, start.port))
                if self._listener
                else None
            )
            if listening is not None:
                start = msgspec.structs.replace(start, listening=listening.fileno())
            return await self._start(start, [listening.fileno()] if listening else [])

    async def _listening(self, listener: SharedListener, port: int) -> socket.socket:
        """Wait for the port: the process that served for a killed controller keeps it until it has noticed. Raises Unavailable."""
        try:
            async with asyncio.timeout(PORT_SECONDS):
                while True:
                    try:
                        return listener.listen(port)
                    except Unavailable:
                        await asyncio.sleep(PORT_PAUSE)
        except TimeoutError:
            return listener.listen(port)

    async def _start(self, start: ipc.Start, descriptors: Sequence[int]) -> Publisher:
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undone:
            self._channel = ipc.Channel(*await asyncio.open_unix_connection(sock=ours))
            undone.callback(self._channel.close)
            command = [sys.executable, "-P", "-m", "antrea.controller.apiserver.server", str(theirs.fileno())]
            self._process = await asyncio.create_subprocess_exec(
                *command, pass_fds=(theirs.fileno(), *descriptors)
            )
            undone.pop_all()
        try:
            self.port: int = await self._served(start)
        except BaseException:
            # cancelled, too: a process that is left behind keeps its port
            await self.stop()
            raise
        return Publisher(self._channel)

    async def _served(self, start: ipc.Start) -> int:
        """The port. Raises Unavailable, Invalid."""
        self._channel.send(start)
        try:
            async with asyncio.timeout(START_SECONDS):
                first = await self._channel.receive()
        except (TimeoutError, Unavailable) as error:
            raise Unavailable(f"the serving process has not started: {error}") from error
        if isinstance(first, ipc.Failed):
            raise _error(first)
        port: int = first.port
        return port

    @property
    def pid(self) -> int:
        """Process id of the serving process."""
        return self._process.pid

    async def run(self) -> None:
        """Answer questions until cancelled. Raises Unavailable when the front has ended, Invalid in its words."""
        while True:
            try:
                frame = await self._channel.receive()
            except Unavailable as error:
                code = await self._process.wait()
                raise Unavailable(f"the serving process has ended with status {code}") from error
            if isinstance(frame, ipc.Query):
                self._channel.send(answer(self._facts, frame))
            elif isinstance(frame, ipc.CatchUp):
                self._turns.add(turn := asyncio.create_task(self._catch_up(frame.number)))
                turn.add_done_callback(self._turns.discard)
            elif isinstance(frame, ipc.Ping):
                self._channel.send(ipc.Pong(frame.number))
            elif isinstance(frame, ipc.GetMetrics):
                self._channel.send(ipc.MetricsResult(frame.number, self.metrics() + measured()))
            elif isinstance(frame, ipc.AgentCount):
                self.agents = frame.number
                self.changed()
            elif isinstance(frame, ipc.LogLevel):
                klog.set_verbosity(frame.verbosity)
            elif isinstance(frame, ipc.Failed):
                raise _error(frame)

    async def _catch_up(self, number: int) -> None:
        why = ""
        try:
            await self.catch_up()
        except (Unavailable, Refused) as error:
            why = str(error)
        self._channel.send(ipc.CaughtUp(number, why))

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


def _error(failed: ipc.Failed) -> Invalid | Unavailable:
    """In the front's own words."""
    return Invalid(failed.path, failed.why) if failed.path else Unavailable(failed.why)


def answer(facts: Facts, ask: ipc.Query) -> ipc.QueryResult:
    """The answer of the feature that the question is for; a bug is an answer, too, and a line in the log."""
    row = ROWS[ask.group, ask.resource]
    rule = ANSWERS.get((ask.resource, ask.subresource, ask.verb))
    try:
        if rule is None:
            raise Unavailable(f"{ask.verb} {ask.resource} is not built yet")
        posted = None
        if ask.body != ipc.NOTHING:
            posted = decode_msgpack(ask.body, kind_of(row, ask.subresource), row.plural)
        shown = rule(facts, Query(ask.namespace, ask.name, ask.query, posted))
    except Invalid as error:
        shown = _failure(400, "BadRequest", error.why)
    except (Unavailable, Refused) as error:
        shown = _failure(503, "ServiceUnavailable", str(error))
    except Exception as error:  # noqa: BLE001 (one query fails and the process continues)
        log.error("Failed to answer a query", error=error, resource=ask.resource, verb=ask.verb)
        shown = _failure(500, "InternalError", "Internal error occurred")
    if shown is None:
        return ipc.QueryResult(ask.number)
    return ipc.QueryResult(ask.number, ipc.raw(shown), is_status=isinstance(shown, Status))


def _failure(code: int, reason: str, message: str) -> Status:
    return Status(status="Failure", message=message, reason=reason, code=code)


def publish_empty(publisher: Publisher, *, but: Collection[str] = ()) -> None:
    """Let watches begin on all kinds `but` these plurals: they are not computed, and stay empty."""
    for row in RESOURCES:
        if row.stored and row.plural not in but:
            publisher.synced(row.group, row.plural)


async def _nothing_is_late() -> None:
    """Nothing is computed."""


def _ignore() -> None:
    """The default: no listener."""
