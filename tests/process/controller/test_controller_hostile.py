"""Bodies that do not end, and reviews that are large: neither takes the memory nor the loop of the real front process."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certificate_world import api_server

from antrea.controller.apiserver.ipc import Start
from antrea.controller.apiserver.process import ApiServerProcess, publish_empty
from antrea.engine import Facts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MIB = 1 << 20
HALF_SENT, SENT = 60, 7 * MIB
GROWTH = 160
"""MiB that 60 bodies of 7 MiB may take: 24 are held, the rest is TLS and what the allocator keeps. They were 510."""
ANSWERS = 3
"""More of others than that are served while a review of 1 MiB computes; a loop that it held would serve two, before and after."""
EGRESS: dict[str, Any] = {"metadata": {"name": "e"}, "spec": {"appliedTo": {"podSelector": {}}}}


@contextlib.asynccontextmanager
async def served(directory: Path) -> AsyncIterator[ApiServerProcess]:
    """A front whose webhooks anybody may call, with an API server on loopback."""
    async with api_server({}) as (_, kube):
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k"}}],
            "clusters": [{"name": "k", "cluster": {"server": kube.access.url}}],
        }
        (directory / "kubeconfig").write_text(json.dumps(config))
        front = ApiServerProcess(Facts())
        start = Start(
            port=0,
            token_file=str(directory / "token"),
            verbosity=0,
            gates=(),
            certificate_file=str(directory / "none"),
            kubeconfig=str(directory / "kubeconfig"),
        )
        publish_empty(await front.start(start))
        hearing = asyncio.ensure_future(front.run())
        try:
            yield front
        finally:
            hearing.cancel()
            await front.stop()


@cache
def anybody() -> ssl.SSLContext:
    """One context for all: reading the CAs of the machine for each connection takes longer than its handshake."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


API_SERVER = "127.0.0.2"
"""Address from which kube-apiserver calls; attackers have another one, and lose connections first."""


async def opened(
    front: ApiServerProcess, source: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", front.port, ssl=anybody(), local_addr=(source, 0))


def head(size: int, path: str = "/validate/egress", *more: str) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: a", "Content-Type: application/json", f"Content-Length: {size}")
    return "\r\n".join((*lines, *more, "", "")).encode()


def reviewed(**spec: Any) -> bytes:
    found = {**EGRESS, "spec": {**EGRESS["spec"], **spec}}
    return json.dumps({"request": {"uid": "u", "operation": "CREATE", "object": found}}).encode()


async def answered(front: ApiServerProcess, body: bytes, *more: str) -> Any:
    reader, writer = await opened(front, API_SERVER)
    writer.write(head(len(body), "/validate/egress", *more) + body)
    assert b" 200 " in await reader.readline()
    length = 0
    while (line := await reader.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    found = json.loads(await reader.readexactly(length))
    writer.transport.abort()
    return found["response"]


def memory(pid: int) -> float:
    """MiB resident, at most so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


async def half_send(
    front: ApiServerProcess, held: list[asyncio.StreamWriter], *more: str, sent: int = SENT
) -> None:
    _, writer = await opened(front)
    held.append(writer)
    with contextlib.suppress(ConnectionError):
        writer.write(head(sent + 1, "/validate/egress", *more))
        for start in range(0, sent, MIB // 4):
            writer.write(b" " * min(MIB // 4, sent - start))
            await writer.drain()


async def test_sixty_bodies_that_do_not_end_take_little_memory_and_no_place(tmp_path: Path) -> None:
    held: list[asyncio.StreamWriter] = []
    small = reviewed(egressIP="10.0.0.1")
    async with served(tmp_path) as front, asyncio.timeout(300):
        assert (await answered(front, small))["allowed"]
        before = memory(front.pid)
        attack = asyncio.gather(*(half_send(front, held) for _ in range(HALF_SENT)))
        answers = 0
        while not attack.done():
            # the API server's own calls are answered meanwhile
            assert (await answered(front, small))["allowed"]
            answers += 1
        await attack
        assert (await answered(front, small))["allowed"]
        grown = memory(front.pid) - before
        for writer in held:
            writer.transport.abort()
    assert answers > 0
    assert grown < GROWTH


async def test_a_token_that_a_webhook_does_not_ask_for_takes_no_memory_from_the_api_server(
    tmp_path: Path,
) -> None:
    held: list[asyncio.StreamWriter] = []
    small = reviewed(egressIP="10.0.0.1")
    async with served(tmp_path) as front, asyncio.timeout(300):
        proof = f"Authorization: Bearer {(tmp_path / 'token').read_text()}"
        await asyncio.gather(*(half_send(front, held, proof, sent=8 * MIB - 1) for _ in range(12)))
        # while the front takes in what is on its way
        assert all([(await answered(front, small))["allowed"] for _ in range(100)])
        for writer in held:
            writer.transport.abort()


async def test_a_body_stands_for_nothing_but_its_own_bytes(tmp_path: Path) -> None:
    packed = gzip.compress(reviewed(egressIP="10.0.0.1"))
    async with served(tmp_path) as front, asyncio.timeout(300):
        answer = await answered(front, packed, "Content-Encoding: gzip")
    assert (answer["allowed"], "not understood" in answer["status"]["message"]) == (False, True)


async def test_a_large_review_does_not_hold_the_loop_and_warns_of_little(tmp_path: Path) -> None:
    addresses = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(80_000)]
    noted = {f"egress.antrea.io/preferredNode{n}": "x" for n in range(25_000)}
    async with served(tmp_path) as front, asyncio.timeout(300):
        assert (await answered(front, reviewed(egressIP="10.0.0.1")))["allowed"]
        large = asyncio.ensure_future(answered(front, reviewed(egressIPs=addresses)))
        served_meanwhile = 0
        while not large.done():
            reader, writer = await opened(front)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b" 200 " in await reader.readline()
            writer.transport.abort()
            served_meanwhile += 1
        await large
        found = {**EGRESS, "metadata": {"name": "e", "annotations": noted}}
        asked = {"request": {"uid": "u", "operation": "CREATE", "object": found}}
        said = (await answered(front, json.dumps(asked).encode()))["warnings"]
    assert served_meanwhile > ANSWERS
    assert (len(said), said[-1].startswith("and ")) == (21, True)
