"""Clients without any proof of identity that keep connections of a server on loopback, in a process of their own."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SOURCE = "127.0.0.9"
"""Their address. Who keeps others out shares none with them: of one source with too many connections even good ones make room."""
PAUSE = 0.5
"""Seconds before a connection that the server ended is made again."""


class Strangers(NamedTuple):
    """`number` connections, each of which sends `sent` and no more; `tls`: after a handshake; `part` is how much of that is sent."""

    number: int
    sent: bytes = b""
    tls: bool = False
    part: int = 0


CLIENT_HELLO_PART = 40


@contextlib.asynccontextmanager
async def attacked(port: int, by: Strangers) -> AsyncIterator[None]:
    """While these hold connections; the block begins when all have connected once."""
    words = [str(port), str(by.number), str(int(by.tls)), str(by.part)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(by.sent)
    process.stdin.close()
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
        yield
        assert process.returncode is None, "the strangers went"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def resident_kib() -> int:
    """The memory of this process, without what it has freed and kept."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") >> 10


def _client_hello() -> bytes:
    """The first bytes that a client of TLS sends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        _trusting().wrap_bio(incoming, outgoing, server_hostname="a").do_handshake()
    return outgoing.read()


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


async def _hold(port: int, by: Strangers, tls: ssl.SSLContext | None, connected: asyncio.Semaphore) -> None:
    """One connection after the other."""
    hello = _client_hello()[: by.part]
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1",
                port,
                ssl=tls,
                ssl_handshake_timeout=60 if tls else None,
                local_addr=(SOURCE, 0),
            )
            connected.release()
            writer.write(hello + by.sent)
            while await reader.read(65536):
                pass
            writer.transport.abort()
        await asyncio.sleep(PAUSE)


async def _main(port: int, by: Strangers) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    connected, tls = asyncio.Semaphore(0), _trusting() if by.tls else None
    async with asyncio.TaskGroup() as tasks:
        for _ in range(by.number):
            tasks.create_task(_hold(port, by, tls, connected))
        for _ in range(by.number):
            await connected.acquire()
        print("ready", flush=True)


if __name__ == "__main__":
    own, count, tls, part = map(int, sys.argv[1:])
    asyncio.run(_main(own, Strangers(count, sys.stdin.buffer.read(), bool(tls), part)))
