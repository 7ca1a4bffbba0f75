"""A command in a Pod, as kube-apiserver's exec over WebSocket tells of it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from loopback import answering

from antrea.antctl.failure import Failure
from antrea.antctl.pod_exec import PROTOCOLS, STDERR, STDOUT, VERDICT, Done, run_in_pod
from antrea.antctl.request import Server
from antrea.outside.kube.access import Access

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SUCCESS = json.dumps({"status": "Success"})
EXITED = json.dumps(
    {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
    }
)
BROKEN = json.dumps({"status": "Failure", "message": "container not found"})


@asynccontextmanager
async def execs(*messages: tuple[int, str], refuse: int = 0, hold: bool = False) -> AsyncIterator[Server]:
    """A server that sends these on their channels to whoever asks for `echo hi` in container c of ns/p."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if refuse:
            return web.Response(status=refuse)
        assert request.path == "/api/v1/namespaces/ns/pods/p/exec"
        assert request.query.getall("command") == ["echo", "hi"]
        assert (request.query["container"], request.headers["Authorization"]) == ("c", "Bearer t")
        socket = web.WebSocketResponse(protocols=PROTOCOLS[:1])
        await socket.prepare(request)
        for channel, text in messages:
            await socket.send_bytes(bytes([channel]) + text.encode())
        if hold:
            await socket.receive()
        await socket.close()
        return socket

    async with answering(answer) as url:
        yield Server(Access(url=url, token="t"), None)


async def run(server: Server, seconds: float = 60.0) -> Done:
    return await asyncio.to_thread(
        lambda: run_in_pod(server, "ns/p", ["echo", "hi"], container="c", seconds=seconds)
    )


async def test_output_comes_together_with_the_exit_code() -> None:
    pieces = ((STDOUT, ""), (STDOUT, "h"), (STDERR, "oh"), (STDOUT, "i\n"))
    async with execs(*pieces, (VERDICT, SUCCESS)) as server:
        assert await run(server) == Done(0, "hi\n", "oh")
    async with execs((VERDICT, EXITED)) as server:
        assert await run(server) == Done(7, "", "")


async def test_a_command_that_cannot_run_is_one_line() -> None:
    async with execs((VERDICT, BROKEN)) as server:
        with pytest.raises(Failure, match=r"^command in Pod ns/p: container not found$"):
            await run(server)
    async with execs((STDOUT, "half")) as server:
        with pytest.raises(Failure, match="the connection ended before the command"):
            await run(server)
    async with execs(refuse=403) as server:
        with pytest.raises(Failure, match=r"^no command can be run in Pod ns/p: 403 "):
            await run(server)
    async with execs(hold=True) as server:
        with pytest.raises(Failure, match=r"^command in Pod ns/p did not end within 0\.3 s$"):
            await run(server, 0.3)
    away = Server(Access(url="http://127.0.0.1:9"), None)
    with pytest.raises(Failure, match=r"^no command can be run in Pod ns/p: .*127.0.0.1:9"):
        await run(away)
