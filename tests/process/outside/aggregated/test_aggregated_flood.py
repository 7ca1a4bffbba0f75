"""The HTTPS API that all programs have, and the health checks of load balancers, while strangers hold connections: silent and half-sent ones."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from aggregated_world import CP, served
from strangers import CLIENT_HELLO_PART, Strangers, attacked, resident_kib

from antrea.outside.http.probe_server import Answer, serve
from antrea.outside.listener.listening_socket import listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_KIB = 110 << 10
"""1,000 TLS handshakes that do not end take some 60 MiB."""
HEADERS = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Part: "
ATTACKS = {
    "silent": Strangers(2500),
    "half-hello": Strangers(1500, part=CLIENT_HELLO_PART),
    "whole-hello": Strangers(1500, part=4096),
    "no-tls": Strangers(1500, HEADERS),
    "half-headers": Strangers(400, HEADERS, tls=True),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_server_strangers_keep_nobody_with_a_token_out_and_take_little_memory(attack: str) -> None:
    async with served() as world, asyncio.timeout(90):
        path = f"{CP}/networkpolicies"
        await world.ask(path, headers={"Authorization": "Bearer secret"})
        before = resident_kib()
        async with attacked(world.port, ATTACKS[attack]):
            for _ in range(5):
                assert (await world.ask(path, headers={"Authorization": "Bearer secret"}))[0] == 200
                await asyncio.sleep(0.1)
            grown = resident_kib() - before
        print(f"{attack}: {grown >> 10} MiB")
        assert grown < MAX_KIB


@contextlib.asynccontextmanager
async def probed() -> AsyncIterator[int]:
    listening = listen(0, "127.0.0.1")
    serving = asyncio.create_task(serve(listening, lambda _: Answer(200, "ok")))
    try:
        yield listening.getsockname()[1]
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


@pytest.mark.parametrize("by", [Strangers(600), Strangers(600, HEADERS)], ids=["silent", "half-headers"])
async def test_a_load_balancer_is_answered_while_another_source_floods_its_health_check(
    by: Strangers,
) -> None:
    """Its connection waits for long enough that each place is taken several times."""
    async with probed() as port, asyncio.timeout(90), attacked(port, by):
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            await asyncio.sleep(1)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            writer.close()
