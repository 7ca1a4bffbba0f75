"""Ten thousand clients that connect and say nothing, or almost nothing, take no service away from others."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antrea.apis.controlplane import GROUP, AppliedToGroup
from antrea.apis.meta import ObjectMetadata
from antrea.controller.apiserver.ipc import Start
from antrea.controller.apiserver.process import ApiServerProcess, Publisher, publish_empty
from antrea.engine import Facts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

GROUPS = f"/apis/{GROUP}/v1beta2/appliedtogroups"
SLOW = 10_000
BURST = 50
"""Connections that are made in one go: fewer than wait in a server's queue."""
HELLO = bytes.fromhex("1603010200010001fc0303")
"""The first bytes of a TLS handshake, which is never gone on with."""
GROWTH = 320
"""MiB that the front may take more for them: it holds 1,000 at a time, each with up to 200 KiB once it has begun TLS."""
SECONDS = 30.0
"""That any one answer may take meanwhile, whatever else the machine does."""


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * SLOW:
        pytest.skip(f"this process may open {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.asynccontextmanager
async def served(directory: Path) -> AsyncIterator[tuple[ApiServerProcess, Publisher]]:
    """A front on loopback; it has no API server, its own token is enough."""
    front = ApiServerProcess(Facts())
    start = Start(
        port=0,
        token_file=str(directory / "token"),
        verbosity=0,
        gates=(),
        certificate_file=str(directory / "none"),
    )
    publisher = await front.start(start)
    publish_empty(publisher)
    hearing = asyncio.ensure_future(front.run())
    try:
        yield front, publisher
    finally:
        hearing.cancel()
        await front.stop()


class Client:
    """Requests of one who has the token, each over a connection of its own."""

    def __init__(self, front: ApiServerProcess, directory: Path) -> None:
        self._port = front.port
        self._token = (directory / "token").read_text()
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    @contextlib.asynccontextmanager
    async def ask(self, path: str) -> AsyncIterator[asyncio.StreamReader]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls)
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: antrea\r\nAuthorization: Bearer {self._token}\r\n\r\n".encode()
        )
        try:
            yield reader
        finally:
            writer.transport.abort()

    async def is_served(self) -> None:
        async with asyncio.timeout(SECONDS), self.ask("/healthz") as answer:
            assert b" 200 " in await answer.readline()


def memory(pid: int) -> float:
    """MiB resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


async def connect(port: int, held: list[socket.socket], *, talks: bool) -> None:
    loop = asyncio.get_running_loop()
    plain = socket.socket()
    plain.setblocking(False)
    held.append(plain)
    with contextlib.suppress(ConnectionError):
        await loop.sock_connect(plain, ("127.0.0.1", port))
        if talks:
            await loop.sock_sendall(plain, HELLO)


async def test_ten_thousand_slow_connections_take_nothing_from_those_who_are_served(
    tmp_path: Path, many_files: None
) -> None:
    held: list[socket.socket] = []
    async with served(tmp_path) as (front, publisher):
        client = Client(front, tmp_path)
        async with client.ask(f"{GROUPS}?watch=true") as watch:
            await watch.readuntil(b"BOOKMARK")
            before = memory(front.pid)
            await client.is_served()
            try:
                for number in range(0, SLOW, BURST):
                    talks = number % (2 * BURST) == 0
                    await asyncio.gather(*(connect(front.port, held, talks=talks) for _ in range(BURST)))
                    if number % 1000 == 0:
                        await client.is_served()
                await client.is_served()
                group = AppliedToGroup(metadata=ObjectMetadata(name="late", uid="u"))
                publisher.put(GROUP, "appliedtogroups", "late", group)
                async with asyncio.timeout(SECONDS):
                    await watch.readuntil(b'"name":"late"')
                grown = memory(front.pid) - before
            finally:
                for plain in held:
                    plain.close()
    assert len(held) == SLOW
    assert grown < GROWTH
