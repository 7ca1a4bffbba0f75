"""TCP connections that carry sealed packets, each behind its length; few at a time, none for long."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LENGTH = 4
LONGEST = 1 << 20
"""Bytes of a packet: a table of 20,000 members with names of usual length."""
IDLE_SECONDS = 10.0
CONNECT_SECONDS = 2.0
INCOMING_MOST = 64
OUTGOING_MOST = 64
PENDING_MOST = 8
"""Packets that wait for one connection."""
UNSENT_MOST = 2 * LONGEST


class Stream:
    """One connection, of either side; the packets that come in know it as their origin."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        """Queued; dropped if the other side does not read."""
        if not self._writer.is_closing() and self._writer.transport.get_write_buffer_size() < UNSENT_MOST:
            self._writer.write(len(data).to_bytes(LENGTH, "big") + data)

    async def packets(self) -> AsyncIterator[bytes]:
        """Until the other side ends, is silent for long, or sends what is no packet."""
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            while True:
                async with asyncio.timeout(IDLE_SECONDS):
                    length = int.from_bytes(await self._reader.readexactly(LENGTH), "big")
                    if not 0 < length <= LONGEST:
                        return
                    data = await self._reader.readexactly(length)
                yield data

    def close(self) -> None:
        """At once."""
        self._writer.transport.abort()


class Streams:
    """Connections with peers: those that they open, and one to each that we have something for."""

    def __init__(
        self,
        receive: Callable[[bytes, Stream], None],
        connect: Callable[[str], tuple[str, int]],
        reached: Callable[[str, bool], None],
    ) -> None:
        """`connect` names a peer's address and port; raises KeyError. `reached`: its kernel took a connection, or refused it (True)."""
        self._receive = receive
        self._connect = connect
        self._reached = reached
        self._incoming: deque[Stream] = deque()
        self._outgoing: dict[str, Stream | deque[bytes]] = {}
        """To each peer, or what waits until it is there."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One that a peer opened, until it ends; the oldest goes when there are too many."""
        stream = Stream(reader, writer)
        self._incoming.append(stream)
        if len(self._incoming) > INCOMING_MOST:
            self._incoming[0].close()
        try:
            async for data in stream.packets():
                self._receive(data, stream)
        finally:
            self._incoming.remove(stream)
            stream.close()

    def send(self, peer: str, data: bytes) -> None:
        """By the connection to `peer`, which is opened if there is none."""
        held = self._outgoing.get(peer)
        if isinstance(held, Stream):
            held.send(data)
        elif held is not None:
            held.append(data)
        elif len(self._outgoing) < OUTGOING_MOST:
            self._outgoing[peer] = deque([data], maxlen=PENDING_MOST)
            task = asyncio.create_task(self._open(peer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

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
        """All of them."""
        for stream in self._incoming:
            stream.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
