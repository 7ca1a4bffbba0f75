"""The HTTP front under strangers: half-sent, huge, deep and garbled requests; who may ask is answered all the while."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from fuzzing import SECONDS, anything, spoilt, text

from antrea.features.registry.api_resources import RESOURCES
from antrea.outside.apiserver.authentication import Authentication
from antrea.outside.apiserver.authorization import Authorization
from antrea.outside.apiserver.objects import Objects
from antrea.outside.apiserver.server import Server
from antrea.outside.http.handlers import health, loglevel
from antrea.outside.tls.server_context import self_signed, server_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from random import Random

    import msgspec
    from fuzzing import Fuzz

    from antrea.outside.apiserver.objects import Question

pytestmark = [pytest.mark.wide, pytest.mark.timeout(7200)]
MAX_BATCH = 16
MAX_MIB = 400
"""By which the process may grow: the server's budgets for bodies and connections, and what the allocator keeps."""
PATHS = (
    "/healthz", "/livez?verbose", "/loglevel?level=9", "/apis", "/apis/", "/openapi/v2", "/openapi/v3", "/version",
    "/apis/controlplane.antrea.io/v1beta2/networkpolicies", "/apis/controlplane.antrea.io/v1beta2/nodestatssummaries",
    "/apis/system.antrea.io/v1beta1/supportbundles/x/download", "/apis/stats.antrea.io/v1alpha1/namespaces/a/networkpolicystats",
    "/apis/controlplane.antrea.io/v1beta2/networkpolicies?watch=true", "/convert", "/validate/tier", "/..%2f..%2fapis", "/%", "//",
)  # fmt: skip


class Nobody:
    async def answer(self, question: Question) -> msgspec.Struct:
        raise AssertionError(f"a stranger's question was put: {question}")


@asynccontextmanager
async def front() -> AsyncIterator[int]:
    """Its port."""
    handlers = {**health("healthz", {}), **health("livez", {}), "/loglevel": loglevel}
    server = Server(
        Authentication("secret", None),
        Authorization(("/healthz", "/livez"), None),
        Objects(RESOURCES, Nobody()),
        handlers={("GET", path): handler for path, handler in handlers.items()},
        openapi={},
    )
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    running = asyncio.create_task(server.run(listening, server_tls(self_signed(("x",), ("127.0.0.1",)))))
    try:
        yield port
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def request(rnd: Random) -> bytes:
    method = rnd.choice(
        ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "x" * 100, "")
    )
    path = rnd.choice(PATHS) if rnd.random() < 0.8 else "/" + text(rnd)
    body = json.dumps(anything(rnd)).encode("utf-8", "replace")
    way = rnd.randrange(8)
    if way == 0:
        body = rnd.choice((b"[", b'{"a":')) * rnd.randrange(200_000)
    elif way == 1:
        body = b"x" * rnd.randrange(4 << 20)
    length = rnd.choice((len(body), len(body) + 7, 0, 2**31, -1))
    headers = [
        f"Content-Length: {length}" if way != 2 else "Transfer-Encoding: chunked",
        f"Content-Type: {rnd.choice(('application/json', 'application/yaml', 'text/plain', 'application/vnd.kubernetes.protobuf'))}",
        f"Authorization: {rnd.choice(('Bearer stranger', 'Bearer ', 'Basic eDp5', 'Bearer ' + 'x' * 20_000))}",
        f"X-Remote-User: {rnd.choice(('system:admin', 'a'))}",
        rnd.choice(
            (
                "Connection: close",
                "Connection: Upgrade\r\nUpgrade: websocket",
                "Expect: 100-continue",
                "A: " + "b" * 100_000,
                "X-Remote-Group: system:masters",
            )
        ),
    ]
    rnd.shuffle(headers)
    head = "\r\n".join(
        [
            f"{method} {path} HTTP/{rnd.choice(('1.1', '1.0', '2.0', '9'))}",
            "Host: x",
            *headers[: rnd.randrange(6)],
            "",
            "",
        ]
    )
    whole = head.encode("utf-8", "replace") + body
    whole = spoilt(rnd, whole) if rnd.random() < 0.3 else whole
    return whole[: rnd.randrange(len(whole) + 1)] if rnd.random() < 0.3 else whole


async def attack(rnd: Random, port: int, tls: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(3):
            way = rnd.randrange(10)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=None if way == 0 else tls)
            try:
                for _ in range(rnd.randrange(1, 3)):
                    writer.write(request(rnd))
                    await writer.drain()
                if way < 8:
                    await asyncio.wait_for(reader.read(1 << 16), rnd.choice((0.05, 0.5)))
            finally:
                writer.transport.abort()


async def asks(port: int, tls: ssl.SSLContext) -> bytes:
    """What one who may ask is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(
            b"GET /loglevel HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nConnection: close\r\n\r\n"
        )
        return (await reader.read()).split(b"\r\n", 1)[0]
    finally:
        writer.transport.abort()


async def test_wide_fuzz_http_front(fuzz: Fuzz, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("antrea").setLevel(logging.CRITICAL)
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    loop = asyncio.get_running_loop()
    bugs: list[object] = []
    loop.set_exception_handler(lambda _, context: bugs.append(context))
    slowest = 0.0
    async with front() as port:
        assert await asks(port, tls) == b"HTTP/1.1 200 OK"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        batch: list[asyncio.Task[None]] = []
        for rnd in fuzz:
            batch.append(asyncio.create_task(attack(rnd, port, tls)))
            if len(batch) < MAX_BATCH:
                continue
            began = loop.time()
            async with asyncio.timeout(30):
                assert await asks(port, tls) == b"HTTP/1.1 200 OK"
            slowest = max(slowest, loop.time() - began)
            await asyncio.gather(*batch)
            batch.clear()
        await asyncio.gather(*batch)
        assert await asks(port, tls) == b"HTTP/1.1 200 OK"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    print(
        f"slowest answer to who may ask {slowest:.2f} s, grown by {grown} MiB in {SECONDS:g} s, {len(bugs)} errors of the loop"
    )
    assert grown < MAX_MIB
    # a stranger's mistake is not worth a traceback each
    assert [record.message for record in caplog.records if record.exc_info] == []
    assert [one for one in bugs if "exception" in str(one) and "ssl" not in str(one).lower()] == []
