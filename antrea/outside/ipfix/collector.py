"""A collecting process: takes messages over TCP and UDP, each session with templates of its own, and gives their records.

Source: RFC 7011, chapters 9 and 10. What is malformed ends its session; a session without a message for long ends, too.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

from antrea.errors import Invalid, Unavailable
from antrea.ipfix.decode import Decoder
from antrea.ipfix.message import HEADER
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.apis.flow import FlowRecord

log = klog.logger(__name__)

MOST_SESSIONS: Final = 4096
"""At a time; of UDP, one for each sender."""
REST_SECONDS: Final = 1800.0
"""After which a silent session over TCP ends: agents send what they have every few seconds."""
REST_OF_MESSAGE: Final = 30.0
"""Seconds for the rest of a message."""


class Collector:
    """Gives each record to `take`."""

    def __init__(self, take: Callable[[FlowRecord], None]) -> None:
        self._take = take
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = False
        self.sessions = 0
        """Open ones, over TCP."""
        self.received = 0
        self.refused = 0
        """Messages that were malformed."""

    async def serve(self, host: str, port: int, protocol: str, ready: Callable[[int], None]) -> None:
        """Until cancelled; `ready` is given the port. Raises Unavailable if it is taken."""
        try:
            if protocol == "udp":
                await self._serve_datagrams(host, port, ready)
            else:
                await self._serve_streams(host, port, ready)
        except OSError as why:
            raise Unavailable(f"port {port} for records of connections: {why}") from why

    async def _serve_streams(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        server = await asyncio.start_server(self._session, host or None, port)
        async with server:
            ready(server.sockets[0].getsockname()[1])
            try:
                await server.serve_forever()
            finally:
                self._ending = True
                for task in self._tasks:
                    task.cancel()

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or self.sessions >= MOST_SESSIONS:
            writer.close()
            return
        self._tasks.add(task)
        self.sessions += 1
        try:
            await self._messages(reader)
        except Invalid as no:
            self.refused += 1
            log.warning(
                "Ended a session of records", peer=str(writer.get_extra_info("peername")), err=str(no)
            )
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        except asyncio.CancelledError:
            # asyncio of Python 3.11 logs a session that is cancelled as an error
            if not self._ending:
                raise
        finally:
            self.sessions -= 1
            self._tasks.discard(task)
            writer.close()

    async def _messages(self, reader: asyncio.StreamReader) -> None:
        decoder = Decoder()
        while True:
            async with asyncio.timeout(REST_SECONDS):
                head = await reader.readexactly(HEADER.size)
            length = int.from_bytes(head[2:4])
            if length < HEADER.size:
                raise Invalid("IPFIX message", f"a length of {length} bytes is shorter than its header")
            async with asyncio.timeout(REST_OF_MESSAGE):
                body = await reader.readexactly(length - HEADER.size)
            self._read(decoder, head + body)

    async def _serve_datagrams(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        bound = _datagram_socket(host, port)
        transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), sock=bound)
        try:
            ready(transport.get_extra_info("sockname")[1])
            await asyncio.Event().wait()
        finally:
            transport.close()

    def _read(self, decoder: Decoder, message: bytes) -> None:
        _, records = decoder.read(message)
        self.received += len(records)
        for record in records:
            self._take(record)


def _datagram_socket(host: str, port: int) -> socket.socket:
    """Bound to an address, or to all of both families, or of IPv4 where there is no IPv6."""
    version6 = ":" in host or (not host and socket.has_dualstack_ipv6())
    made = socket.socket(socket.AF_INET6 if version6 else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        if version6 and not host:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._decoders: dict[tuple[Any, ...], Decoder] = {}

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        decoder = self._decoders.pop(addr, None) or Decoder()
        # the sender that was heard of last comes last: of too many, who is silent for longest goes
        self._decoders[addr] = decoder
        if len(self._decoders) > MOST_SESSIONS:
            del self._decoders[next(iter(self._decoders))]
        try:
            self._collector._read(decoder, data)
        except Invalid as no:
            self._collector.refused += 1
            log.v(2).info("Dropped a datagram that is no IPFIX message", peer=addr[0], err=str(no))
