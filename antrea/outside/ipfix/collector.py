"""A collecting process: takes messages over TLS, TCP and UDP, each session with templates of its own, and gives their records.

Source: RFC 7011, chapters 9 and 10. What is malformed ends its session; a session without a message for long ends, too.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

from antrea.errors import Invalid, Unavailable
from antrea.ipfix.decode import Decoder
from antrea.ipfix.message import HEADER
from antrea.outside.listener.connection_pool import ConnectionPool
from antrea.outside.listener.listening_socket import bound_socket
from antrea.outside.log import klog
from antrea.outside.session.server import Session, SessionServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.apis.flow import FlowRecord

log = klog.logger(__name__)

REST_SECONDS: Final = 1800.0
"""After which a silent session over TCP ends: agents send what they have every few seconds."""
REST_OF_MESSAGE: Final = 30.0
"""Seconds for the rest of a message."""
MAX_SENDERS: Final = 4096
"""Senders of datagrams whose templates are kept."""


class Collector(SessionServer):
    """Gives each record to `take`."""

    def __init__(self, take: Callable[[FlowRecord], None]) -> None:
        super().__init__("IPFIX records")
        self._take = take
        self.received = 0

    async def serve(self, host: str, port: int, protocol: str, ready: Callable[[int], None]) -> None:
        """Serve until cancelled; `ready` is given the port. Raises Unavailable if it is taken."""
        if protocol == "udp":
            await self._serve_datagrams(host, port, ready)
        else:
            await self.serve_streams(host, port, ready)

    async def serve_session(self, session: Session) -> None:
        """Messages, one after the other; nothing is answered."""
        decoder, reader = Decoder(), session.reader
        while True:
            async with asyncio.timeout(REST_SECONDS):
                head = await reader.readexactly(HEADER.size)
            length = int.from_bytes(head[2:4])
            if length < HEADER.size:
                raise Invalid("IPFIX message", f"a length of {length} bytes is shorter than its header")
            async with asyncio.timeout(REST_OF_MESSAGE):
                body = await reader.readexactly(length - HEADER.size)
            self._read(decoder, head + body, session.address)
            session.mark_request()

    async def _serve_datagrams(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        try:
            bound = bound_socket(host, port, socket.SOCK_DGRAM)
        except OSError as error:
            raise Unavailable(f"port {port} for flow records cannot be opened: {error}") from error
        bound.setblocking(False)
        transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), sock=bound)
        try:
            ready(transport.get_extra_info("sockname")[1])
            await asyncio.Event().wait()
        finally:
            transport.close()

    def _read(self, decoder: Decoder, message: bytes, peer: str) -> None:
        header, records = decoder.read(message)
        self.received += len(records)
        for record in records:
            record.original_observation_domain_id = header.domain
            record.set_exporter(peer)
            self._take(record)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._decoders: dict[tuple[Any, ...], Decoder] = {}
        self._senders = ConnectionPool(MAX_SENDERS)

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        decoder = self._decoders.setdefault(addr, Decoder())
        self._senders.discard(addr)
        self._senders.add(addr)
        if self._senders.exceeds and (gone := self._senders.next_to_drop(besides=addr)):
            self._senders.discard(gone)
            del self._decoders[gone]
        try:
            self._collector._read(decoder, data, str(addr[0]).partition("%")[0])
        except Invalid as error:
            self._collector.refused += 1
            log.v(2).info("Dropped a datagram that is not an IPFIX message", peer=addr[0], err=str(error))
