"""A gRPC server in one HTTP/2 connection: calls at a time, what each sends and what waits to be sent are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from h2.events import DataReceived, Event, RequestReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes

from antrea.errors import Invalid
from antrea.outside.grpc.framing import (
    CONTENT_TYPE,
    INVALID_ARGUMENT,
    OK,
    UNIMPLEMENTED,
    MessageSplitter,
    framed,
    trailers,
)
from antrea.outside.grpc.http2 import Http2, StreamGone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from antrea.outside.session.server import Session

CHUNK: Final = 65536
MAX_CALLS: Final = 8
"""At a time, of one connection."""
MAX_BEGUN: Final = 1000
"""Calls of one connection that were reset: who begins and resets without end is sent away."""
MAX_HEADERS: Final = 16384
"""Bytes of the headers of a call."""
WINDOW: Final = 1 << 20
"""Bytes of a call that may be on their way."""
REST_SECONDS: Final = 1800.0
"""After which a connection without a call that is awaited ends."""
WRITE_SECONDS: Final = 30.0
"""For a peer to take what was sent."""


class CallRefused(Exception):
    """The call ends with this gRPC status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Call:
    """One call, as the method that answers it sees it."""

    def __init__(self, connection: ServerConnection, stream: int, headers: Mapping[str, str]) -> None:
        self._connection, self.stream, self.headers = connection, stream, headers
        self.peer = connection.peer
        self._splitter = MessageSplitter(connection.window)
        self._messages: deque[tuple[bytes, int]] = deque()
        self._news = asyncio.Event()
        self.is_complete = False
        """Whether the client has sent all that it has to send."""

    def feed(self, data: bytes, counted: int) -> None:
        """Receive data, which took so much of the window. Raises Invalid."""
        messages = self._splitter.feed(data)
        # the sender goes on once messages are taken; of a part of one, at once
        self._messages += [(message, counted if at == 0 else 0) for at, message in enumerate(messages)]
        if not messages:
            self._connection.acknowledge(counted, self.stream)
        self._news.set()

    def complete(self) -> None:
        """The client sends no more. Raises Invalid: it stopped within a message."""
        self._splitter.expect_end()
        self.is_complete = True
        self._news.set()

    async def receive(self) -> bytes | None:
        """The next message; None: there is none any more."""
        while not self._messages:
            if self.is_complete:
                return None
            self._news.clear()
            await self._news.wait()
        message, counted = self._messages.popleft()
        if counted:
            self._connection.acknowledge(counted, self.stream)
            await self._connection.flush()
        return message

    async def send(self, message: bytes) -> None:
        """Send a message, as the client has room for it. Raises OSError."""
        await self._connection.send(self.stream, framed(message))


class ServerConnection:
    """Serves the calls of one connection."""

    def __init__(
        self,
        session: Session,
        methods: Mapping[str, Callable[[Call], Awaitable[None]]],
        *,
        window: int = WINDOW,
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        """`methods` answer calls of a path: they send what there is to send, and raise CallRefused or Invalid.

        `window` bounds the bytes of a call that may be on their way, and of a message; `rest_seconds` is for a connection without a call.
        """
        self._reader, self._writer, self.peer = session.reader, session.writer, session.address
        self._methods, self.window, self.rest_seconds = methods, window, rest_seconds
        self._http = Http2(client=False)
        self._calls: dict[int, tuple[Call, asyncio.Task[None]]] = {}
        self._resets = 0
        self._called = 0.0
        """When the last call ended."""
        self._room = asyncio.Event()

    async def run(self) -> None:
        """Run until the connection ends. Raises Invalid if the peer violates HTTP/2 or gRPC; OSError."""
        try:
            await self._begin_session()
            while data := await self._read():
                for event in self._http.receive(data):
                    # a peer may end a stream in the same bytes that begin it
                    with contextlib.suppress(StreamGone):
                        self._handle_event(event)
                self._room.set()
                await self.flush()
        finally:
            tasks = [task for _, task in self._calls.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _begin_session(self) -> None:
        settings = {
            SettingCodes.MAX_CONCURRENT_STREAMS: MAX_CALLS,
            SettingCodes.INITIAL_WINDOW_SIZE: self.window,
            SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADERS,
        }
        self._http.begin(settings, self.window)
        await self.flush()

    async def _read(self) -> bytes:
        """Raises TimeoutError: there is no call, and there was none for `rest_seconds`."""
        while True:
            try:
                async with asyncio.timeout(self.rest_seconds):
                    return await self._reader.read(CHUNK)
            except TimeoutError:
                if not self._calls and time.monotonic() - self._called >= self.rest_seconds:
                    raise

    async def flush(self) -> None:
        """Write what waits. Raises OSError: the peer does not take it."""
        self._writer.write(self._http.output())
        async with asyncio.timeout(WRITE_SECONDS):
            await self._writer.drain()

    def acknowledge(self, byte_count: int, stream: int) -> None:
        """Give the peer room for as much again. Raises OSError."""
        self._http.acknowledge(byte_count, stream)

    async def send(self, stream: int, data: bytes) -> None:
        """Raises OSError."""
        rest = memoryview(data)
        while rest:
            size = min(self._http.room(stream), len(rest))
            if size <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            self._http.send_data(stream, bytes(rest[:size]))
            rest = rest[size:]
            await self.flush()

    def _handle_event(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._begin(event.stream_id, {str(name): str(value) for name, value in event.headers})
            case DataReceived() if call := self._calls.get(event.stream_id):
                call[0].feed(event.data, event.flow_controlled_length)
            case DataReceived():
                # the rest of a call that was answered already
                self._http.acknowledge(event.flow_controlled_length, event.stream_id)
            case StreamEnded() if call := self._calls.get(event.stream_id):
                call[0].complete()
            case StreamReset():
                self._reset(event.stream_id)

    def _begin(self, stream: int, headers: Mapping[str, str]) -> None:
        if not headers.get("content-type", "").startswith(CONTENT_TYPE):
            self._http.send_headers(stream, [(":status", "415")], end_stream=True)
            return
        call = Call(self, stream, headers)
        task = asyncio.create_task(self._answer(call), name="gRPC call")
        self._calls[stream] = (call, task)
        task.add_done_callback(lambda _: self._end_call(stream))

    def _end_call(self, stream: int) -> None:
        del self._calls[stream]
        self._called = time.monotonic()

    def _reset(self, stream: int) -> None:
        self._resets += 1
        if self._resets > MAX_BEGUN:
            raise Invalid("HTTP/2", f"{MAX_BEGUN} calls were begun and reset")
        if call := self._calls.get(stream):
            call[1].cancel()

    async def _answer(self, call: Call) -> None:
        method = self._methods.get(call.headers.get(":path", ""))
        status, message = OK, ""
        try:
            self._http.send_headers(call.stream, [(":status", "200"), ("content-type", CONTENT_TYPE)])
            if method is None:
                raise CallRefused(UNIMPLEMENTED, "there is no such method")
            await method(call)
        except CallRefused as error:
            status, message = error.status, str(error)
        except Invalid as error:
            status, message = INVALID_ARGUMENT, str(error)
        except OSError:
            return
        try:
            self._http.send_headers(call.stream, trailers(status, message), end_stream=True)
            await self.flush()
        except OSError:
            return
