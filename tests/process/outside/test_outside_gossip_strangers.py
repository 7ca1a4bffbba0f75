"""Connections of who has no key take no place from a member whose gossip comes over TCP."""

from __future__ import annotations

import asyncio
import contextlib

from strangers import Strangers, attacked, resident_kib

from antrea.outside.gossip.stream import INCOMING, LENGTH, MAX_BYTES, Stream, Streams
from antrea.outside.listener.listening_socket import listen

MAX_KIB = 48 << 10
"""32 connections with a packet that is never whole, of 1 MiB each."""


async def test_gossip_a_member_keeps_its_connection_while_strangers_come() -> None:
    got = asyncio.Queue[tuple[bytes, Stream]]()
    answers = asyncio.Queue[bytes]()

    def receive(data: bytes, stream: Stream) -> bool:
        got.put_nowait((data, stream))
        return data == b"sealed"

    def answered(data: bytes, _: Stream) -> bool:
        answers.put_nowait(data)
        return True

    listening = listen(0, "127.0.0.1")
    port = listening.getsockname()[1]
    server = Streams(receive, lambda _: ("", 0), lambda *_: None)
    member = Streams(answered, lambda _: ("127.0.0.1", port), lambda *_: None)
    serving = asyncio.create_task(server.serve_at(listening))
    flood = Strangers(4 * INCOMING.new, (MAX_BYTES).to_bytes(LENGTH) + bytes(MAX_BYTES - 1))
    before = resident_kib()
    async with asyncio.timeout(60):
        member.send("server", b"sealed")
        _, stream = await got.get()
        async with attacked(port, flood):
            for _ in range(10):
                stream.send(b"answer")
                assert await answers.get() == b"answer"
                await asyncio.sleep(0.1)
            # and one that comes now gets in
            other = Streams(answered, lambda _: ("127.0.0.1", port), lambda *_: None)
            other.send("server", b"sealed")
            assert (await got.get())[0] == b"sealed"
            grown = resident_kib() - before
            await other.close()
    print(f"{grown >> 10} MiB")
    assert grown < MAX_KIB
    assert server.rejected > INCOMING.new
    await member.close()
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
