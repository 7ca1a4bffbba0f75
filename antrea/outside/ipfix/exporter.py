"""A session with a collector: records go out in messages, templates first; over UDP the templates are repeated.

Source: RFC 7011, chapters 8 and 10.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import TYPE_CHECKING, Final

from antrea.errors import Unavailable, describe_error

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from antrea.apis.flow import FlowRecord
    from antrea.ipfix.json_message import JsonWriter
    from antrea.ipfix.message import MessageWriter

TIMEOUT: Final = 10.0
"""Seconds for a connection, and for a collector to take what was sent."""
TEMPLATE_SECONDS: Final = 600.0
"""Between templates over UDP."""
STREAM_MOST, DATAGRAM_MOST = 16384, 1232
"""Bytes of a message, unless one record has more; a datagram of these goes through any path of IPv6 whole."""


def record_time() -> float:
    """The time by which records are dated, in seconds of the epoch; when one is due goes by the monotonic clock."""
    return time.time()


class CollectorSession:
    """Open until a failure; then another one is made."""

    def __init__(
        self, writer: MessageWriter | JsonWriter, *, template_seconds: float = TEMPLATE_SECONDS, most: int = 0
    ) -> None:
        """`most` bytes of a message, unless one record has more; 0: by the protocol."""
        self._writer, self._most = writer, most
        self._template_seconds = template_seconds
        self._stream: asyncio.StreamWriter | None = None
        self._datagrams: socket.socket | None = None
        self._watching: asyncio.Task[None] | None = None
        self._templates_due = 0.0
        self.trouble = ""
        """Why nothing can be sent any more; empty: it can."""

    async def open(
        self, host: str, port: int, protocol: str, tls: ssl.SSLContext | None = None, name: str = ""
    ) -> None:
        """Connect; with `tls` to a server whose certificate has this name. Raises Unavailable."""
        where = f"flow collector {host}:{port} over {protocol}"
        try:
            async with asyncio.timeout(TIMEOUT):
                if protocol == "udp":
                    self._datagrams = await _datagram_socket(host, port)
                else:
                    reader, self._stream = await asyncio.open_connection(
                        host, port, ssl=tls, server_hostname=name if tls else None
                    )
                    self._watching = asyncio.create_task(self._watch(reader), name=where)
            await self._send(self._writer.templates(int(record_time())))
        except (OSError, ValueError) as error:
            await self.close()
            raise Unavailable(f"{where}: {describe_error(error) if str(error) else 'no answer'}") from error
        self._templates_due = time.monotonic() + self._template_seconds

    def expect_open(self) -> None:
        """Raises Unavailable: the session has failed."""
        if self.trouble:
            raise Unavailable(f"flow collector: {self.trouble}")

    async def export(self, records: Sequence[FlowRecord]) -> int:
        """Send these; returns how many went out. Raises Unavailable: the session has failed."""
        self.expect_open()
        now = int(record_time())
        most = self._most or (DATAGRAM_MOST if self._datagrams else STREAM_MOST)
        try:
            if self._datagrams and time.monotonic() >= self._templates_due:
                await self._send(self._writer.templates(now))
                self._templates_due = time.monotonic() + self._template_seconds
            sent = 0
            for message, count in self._writer.data(records, now, most):
                await self._send([message])
                sent += count
        except OSError as error:
            raise Unavailable(
                f"flow collector: {describe_error(error) if str(error) else 'it takes nothing'}"
            ) from error
        return sent

    async def close(self) -> None:
        """End the session at once."""
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._stream:
            self._stream.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._stream.wait_closed()
        if self._datagrams:
            self._datagrams.close()
        self._stream = self._datagrams = self._watching = None

    async def _send(self, messages: Sequence[bytes]) -> None:
        if self._datagrams:
            loop = asyncio.get_running_loop()
            for message in messages:
                await loop.sock_sendall(self._datagrams, message)
        elif self._stream:
            self._stream.writelines(messages)
            async with asyncio.timeout(TIMEOUT):
                await self._stream.drain()

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        """A collector sends nothing but the end of the connection."""
        why = ""
        try:
            while await reader.read(4096):
                pass
        except OSError as error:
            # such as an alert of TLS: it has refused our certificate
            why = f": {describe_error(error)}"
        self.trouble = f"it ended the connection{why}"


async def _datagram_socket(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = addresses[0]
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    try:
        await loop.sock_connect(made, address)
    except OSError:
        made.close()
        raise
    return made
