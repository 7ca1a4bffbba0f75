"""TCP connections that carry sealed packets, each behind its length; few at a time, none for long."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from antrea.outside.listener.listener import Limits
from antrea.outside.session.server import SessionServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from antrea.outside.session.server import Session

LENGTH = 4
MAX_BYTES = 1 << 20
"""Bytes of a packet: a table of 20,000 members with names of usual length."""
IDLE_SECONDS = 10.0
CONNECT_SECONDS = 2.0
INCOMING = Limits(
    connections=256, new=32, first_request_seconds=IDLE_SECONDS, idle_seconds=IDLE_SECONDS, last_seconds=0.0
)
"""Connections that peers opened; one is a peer's once a packet of it was opened by a key of both."""
OUTGOING_MOST = 64
PENDING_MOST = 8
"""Packets that wait for one connection."""
UNSENT_MOST = 2 * MAX_BYTES


class Stream:
    """One connection, of either side; the packets that come in know it as their origin."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        """Queued; dropped if the other side does not read."""
        if not self._writer.is_closing() and self._writer.transport.get_write_buffer_size() < UNSENT_MOST:
            self._writer.write(len(data).to_bytes(LENGTH, "big") + data)

    async def packets(self) -> AsyncIterator[bytes]:
        """Yield packets until the other side ends, is silent for long, or sends an invalid packet."""
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            while True:
                async with asyncio.timeout(IDLE_SECONDS):
                    length = int.from_bytes(await self._reader.readexactly(LENGTH), "big")
                    if not 0 < length <= MAX_BYTES:
                        return
                    data = await self._reader.readexactly(length)
                yield data

    def close(self) -> None:
        """At once."""
        self._writer.transport.abort()


class Streams(SessionServer):
    """Connections with peers: those that they open, and one to each that we have something for."""

    def __init__(
        self,
        receive: Callable[[bytes, Stream], bool],
        connect: Callable[[str], tuple[str, int]],
        reached: Callable[[str, bool], None],
    ) -> None:
        """`receive` returns whether a packet proves its sender; `connect` names a peer's address and port, and raises KeyError.

        `reached`: its kernel took a connection, or refused it (True).
        """
        super().__init__("gossip", INCOMING)
        self._receive = receive
        self._connect = connect
        self._reached = reached
        self._outgoing: dict[str, Stream | deque[bytes]] = {}
        """To each peer, or what waits until it is there."""
        self._openings: set[asyncio.Task[None]] = set()

    async def serve_session(self, session: Session) -> None:
        """One that a peer opened, until it ends."""
        stream = Stream(session.reader, session.writer)
        async for data in stream.packets():
            if self._receive(data, stream):
                session.prove()

    def send(self, peer: str, data: bytes) -> None:
        """Send over the connection to `peer`, which is opened if there is none."""
        held = self._outgoing.get(peer)
        if isinstance(held, Stream):
            held.send(data)
        elif held is not None:
            held.append(data)
        elif len(self._outgoing) < OUTGOING_MOST:
            self._outgoing[peer] = deque([data], maxlen=PENDING_MOST)
            task = asyncio.create_task(self._open(peer))
            self._openings.add(task)
            task.add_done_callback(self._openings.discard)

    async def _open(self, peer: str) -> None:
        stream = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                stream = Stream(*await asyncio.open_connection(*self._connect(peer)))
            self._reached(peer, False)
            waiting, self._outgoing[peer] = self._outgoing[peer], stream
            for data in waiting if isinstance(waiting, deque) else ():
                stream.send(data)
            async for data in stream.packets():
                self._receive(data, stream)
        except ConnectionRefusedError:
            self._reached(peer, True)
        except (OSError, TimeoutError, KeyError):
            # the datagrams that go beside it may arrive, and if not, there is a next probe
            return
        finally:
            del self._outgoing[peer]
            if stream:
                stream.close()

    async def close(self) -> None:
        """Close all of them."""
        for task in self._openings:
            task.cancel()
        await asyncio.gather(*self._openings, return_exceptions=True)
        await self.end_sessions()
