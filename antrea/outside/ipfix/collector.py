"""A collecting process: takes messages over TLS, TCP and UDP, each session with templates of its own, and gives their records.

Source: RFC 7011, chapters 9 and 10. What is malformed ends its session; a session without a message for long ends, too.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

from antrea.errors import Invalid, Unavailable, words
from antrea.ipfix.decode import Decoder
from antrea.ipfix.message import HEADER
from antrea.outside.log import klog

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from antrea.apis.flow import FlowRecord

log = klog.logger(__name__)

MOST_SESSIONS: Final = 4096
"""At a time; of UDP, one for each sender."""
REST_SECONDS: Final = 1800.0
"""After which a silent session over TCP ends: agents send what they have every few seconds."""
REST_OF_MESSAGE: Final = 30.0
"""Seconds for the rest of a message."""
HANDSHAKE_SECONDS: Final = 10.0
ACCEPT_PAUSE: Final = 1.0
BACKLOG: Final = 512


class Collector:
    """Gives each record to `take`."""

    def __init__(self, take: Callable[[FlowRecord], None]) -> None:
        self._take = take
        self._tasks: set[asyncio.Task[None]] = set()
        self.tls: ssl.SSLContext | None = None
        """Of sessions that begin from now on; None: they are not encrypted."""
        self.sessions = 0
        """Open ones, over TCP and TLS."""
        self.received = 0
        self.refused = 0
        """Messages that were malformed."""
        self.rejected = 0
        """Connections that were no session: no certificate of ours, no TLS, too many at a time."""
        self._last_rejected = ("", "")

    async def serve(self, host: str, port: int, protocol: str, ready: Callable[[int], None]) -> None:
        """Until cancelled; `ready` is given the port. Raises Unavailable if it is taken."""
        try:
            if protocol == "udp":
                await self._serve_datagrams(host, port, ready)
            else:
                await self._serve_streams(host, port, ready)
        except OSError as why:
            raise Unavailable(f"port {port} for records of connections: {why}") from why

    async def end_sessions(self) -> None:
        """End all that are open, over TCP and TLS."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve_streams(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        with _bound_socket(host, port, socket.SOCK_STREAM) as listening:
            listening.listen(BACKLOG)
            ready(listening.getsockname()[1])
            try:
                while True:
                    try:
                        accepted, peer = await loop.sock_accept(listening)
                    except OSError as why:
                        # too many open files, or a peer that has gone: others go on
                        log.warning("Failed to accept a session of records", err=str(why))
                        await asyncio.sleep(ACCEPT_PAUSE)
                        continue
                    self._begin(accepted, str(peer[0]).partition("%")[0])
            finally:
                await self.end_sessions()

    def _begin(self, accepted: socket.socket, peer: str) -> None:
        if len(self._tasks) >= MOST_SESSIONS:
            self._reject(peer, f"{MOST_SESSIONS} sessions are open")
            accepted.close()
            return
        task = asyncio.create_task(self._session(accepted, peer), name="session of records")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reject(self, peer: str, why: str) -> None:
        self.rejected += 1
        # a peer that tries again and again is one line
        if (peer, why) != self._last_rejected:
            log.warning("Rejected a session of records", peer=peer, err=why)
        self._last_rejected = (peer, why)

    async def _session(self, accepted: socket.socket, peer: str) -> None:
        reader, tls = asyncio.StreamReader(), self.tls
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: asyncio.StreamReaderProtocol(reader), accepted, ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
            )  # fmt: skip
        except OSError as why:
            self._reject(peer, words(why))
            return
        self.sessions += 1
        try:
            await self._messages(reader, peer)
        except Invalid as no:
            self.refused += 1
            log.warning("Ended a session of records", peer=peer, err=str(no))
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            self.sessions -= 1
            transport.abort()

    async def _messages(self, reader: asyncio.StreamReader, peer: str) -> None:
        decoder = Decoder()
        while True:
            async with asyncio.timeout(REST_SECONDS):
                head = await reader.readexactly(HEADER.size)
            length = int.from_bytes(head[2:4])
            if length < HEADER.size:
                raise Invalid("IPFIX message", f"a length of {length} bytes is shorter than its header")
            async with asyncio.timeout(REST_OF_MESSAGE):
                body = await reader.readexactly(length - HEADER.size)
            self._read(decoder, head + body, peer)

    async def _serve_datagrams(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        bound = _bound_socket(host, port, socket.SOCK_DGRAM)
        transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), sock=bound)
        try:
            ready(transport.get_extra_info("sockname")[1])
            await asyncio.Event().wait()
        finally:
            transport.close()

    def _read(self, decoder: Decoder, message: bytes, peer: str) -> None:
        header, records = decoder.read(message)
        self.received += len(records)
        address = peer.removeprefix("::ffff:")
        version6 = ":" in address
        for record in records:
            record.original_observation_domain_id = header.domain
            record.original_exporter_ipv4, record.original_exporter_ipv6 = (
                ("", address) if version6 else (address, "")
            )
            self._take(record)


def _bound_socket(host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    """Bound to an address, or to all of both families, or of IPv4 where there is no IPv6."""
    version6 = ":" in host or (not host and socket.has_dualstack_ipv6())
    made = socket.socket(socket.AF_INET6 if version6 else socket.AF_INET, kind)
    made.setblocking(False)
    try:
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
            self._collector._read(decoder, data, str(addr[0]).partition("%")[0])
        except Invalid as no:
            self._collector.refused += 1
            log.v(2).info("Dropped a datagram that is no IPFIX message", peer=addr[0], err=str(no))
