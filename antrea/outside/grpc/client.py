"""A call of which the client sends a stream of messages, over HTTP/2 and TLS, within the bounds that the server sets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)

from antrea.errors import Invalid, Unavailable, describe_error
from antrea.outside.grpc.framing import CONTENT_TYPE, framed, status_text
from antrea.outside.grpc.http2 import Http2

if TYPE_CHECKING:
    import ssl

CHUNK: Final = 65536
FAREWELL_SECONDS: Final = 1.0
"""For which the server's answer is awaited at the end."""


class ClientStream:
    """One call in a connection of its own."""

    def __init__(self, patience: float) -> None:
        """`patience`: seconds for a connection, and for the server to take what was sent."""
        self._patience = patience
        self._http = Http2(client=True)
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._is_ready = self._ended = False
        self._stream = 0
        self._answer: dict[str, str] = {}
        self.trouble = ""
        """Why nothing can be sent any more; empty: it can."""

    async def open(self, host: str, port: int, path: str, tls: ssl.SSLContext, name: str) -> None:
        """Begin the call, once the server's settings have come. Raises OSError, Unavailable.

        A server that does not accept our certificate ends the connection after the handshake, and sends none.
        """
        async with asyncio.timeout(self._patience):
            reader, self._writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=name)
            self._http.begin()
            self._reading = asyncio.create_task(self._read(reader), name=f"gRPC {host}:{port}")
            await self._flush()
            while not self._is_ready:
                await self._wait()
            pseudo = ((":method", "POST"), (":scheme", "https"), (":path", path), (":authority", name))
            more = (("content-type", CONTENT_TYPE), ("te", "trailers"), ("user-agent", "antrea"))
            self._stream = self._http.open_stream((*pseudo, *more))
            await self._flush()

    def expect_open(self) -> None:
        """Raises Unavailable: the call has ended."""
        if self.trouble:
            raise Unavailable(self.trouble)

    async def send(self, message: bytes) -> None:
        """Send a message. Raises Unavailable, OSError."""
        rest = memoryview(framed(message))
        async with asyncio.timeout(self._patience):
            while rest:
                self.expect_open()
                room = self._http.room(self._stream)
                if room <= 0:
                    await self._wait()
                    continue
                size = min(room, len(rest))
                self._http.send_data(self._stream, bytes(rest[:size]))
                rest = rest[size:]
                await self._flush()

    async def close(self) -> None:
        """End the call, and the connection."""
        if self._writer and self._stream and not self.trouble:
            with contextlib.suppress(OSError, Unavailable, TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    self._http.end_stream(self._stream)
                    await self._flush()
                    while not self._ended:
                        await self._wait()
        if self._reading:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._writer:
            self._writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self._writer.wait_closed()
        self._writer = self._reading = None

    async def _wait(self) -> None:
        self.expect_open()
        self._news.clear()
        await self._news.wait()

    async def _flush(self) -> None:
        if self._writer:
            self._writer.write(self._http.output())
            await self._writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        why = "it ended the connection"
        try:
            while data := await reader.read(CHUNK):
                for event in self._http.receive(data):
                    self._handle_event(event)
                self._news.set()
                await self._flush()
        except OSError as error:
            # such as an alert of TLS: it has refused our certificate
            why = f"it ended the connection: {describe_error(error)}"
        except Invalid as error:
            why = f"it is not HTTP/2: {error.why}"
        self._end(why)

    def _handle_event(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged():
                self._is_ready = True
            case DataReceived():
                self._http.acknowledge(event.flow_controlled_length, event.stream_id)
            case ResponseReceived() | TrailersReceived():
                self._answer |= {str(name): str(value) for name, value in event.headers}
            case StreamEnded():
                self._ended = True
                self._end(status_text(self._answer))
            case StreamReset():
                self._end(f"it reset the call: {_code(event.error_code)}")
            case ConnectionTerminated():
                said = (event.additional_data or b"")[:200].decode(errors="replace")
                self._end(f"it ended the connection: {_code(event.error_code)} {said}".rstrip())
            case WindowUpdated():
                pass  # who waits for room is woken anyway

    def _end(self, why: str) -> None:
        self.trouble = self.trouble or why
        self._news.set()


def _code(code: ErrorCodes | int | None) -> str:
    return code.name if isinstance(code, ErrorCodes) else str(code)
