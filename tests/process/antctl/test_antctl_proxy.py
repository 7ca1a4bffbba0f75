"""The local reverse proxy between real clients and a real server on loopback."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from click.testing import CliRunner

from antrea.antctl import mode
from antrea.antctl.main import antctl
from antrea.antctl.proxy.command import Files, Filter, Identity, Place, _patterns, command
from antrea.antctl.proxy.server import ReverseProxy
from antrea.antctl.request import Server
from antrea.outside.kube.access import Access

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DEFAULTS: dict[str | None, Any] = {parameter.name: parameter.default for parameter in command().params}
LOCAL = Place("127.0.0.1", 0, None)
ACCEPTED = Filter(*(_patterns(name, DEFAULTS[name]) for name in Filter._fields))


async def told(request: web.Request) -> web.StreamResponse:
    """What arrived; /watch sends a line and then waits until nobody listens, /cut ends in the middle."""
    if request.path == "/watch":
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await asyncio.sleep(60)
    if request.path == "/cut":
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"short")
        assert request.transport
        request.transport.abort()
        return response
    found = {
        "method": request.method,
        "path": request.raw_path,
        "as": request.headers.get("Authorization", ""),
        "connection": request.headers.get("X-Hop", ""),
        "body": (await request.read()).decode(),
    }
    return web.json_response(found, status=404 if request.path == "/none" else 200)


@asynccontextmanager
async def listening(handler: Any) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def proxied(url: str, place: Place = LOCAL, **options: Any) -> AsyncIterator[str]:
    access = Access(url=url, token="mine")
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    proxy = ReverseProxy(
        access,
        options.pop("identity", None) or Identity(None, Server(access, None)),
        options.pop("accepted", ACCEPTED),
        **{"prefix": "/", "files": None, "keepalive": 0.0, **options},
    )
    running = asyncio.create_task(proxy.run(place, started.set_result))
    try:
        yield f"http://{await started}"
    finally:
        signal.raise_signal(signal.SIGTERM)
        await running


async def test_a_request_goes_on_as_it_is_with_our_credentials() -> None:
    async with listening(told) as url, proxied(url, keepalive=5.0) as at, aiohttp.ClientSession() as client:
        async with client.post(
            f"{at}/a%2Fb?x=1&x=2", data=b"body", headers={"Connection": "X-Hop", "X-Hop": "1"}
        ) as answer:
            assert await answer.json() == {
                "method": "POST",
                "path": "/a%2Fb?x=1&x=2",
                "as": "Bearer mine",
                "connection": "",
                "body": "body",
            }
        async with client.get(f"{at}/none", headers={"Authorization": "Bearer theirs"}) as answer:
            assert (answer.status, (await answer.json())["as"]) == (404, "Bearer theirs")


async def test_an_answer_streams_and_one_cut_short_is_seen_to_be() -> None:
    async with listening(told) as url, proxied(url) as at, aiohttp.ClientSession() as client:
        async with asyncio.timeout(30), client.get(f"{at}/watch") as answer:
            assert await answer.content.readline() == b"first\n"
        async with client.get(f"{at}/cut") as answer:
            with pytest.raises(aiohttp.ClientError):
                await answer.read()
    async with (
        proxied("http://127.0.0.1:9") as at,
        aiohttp.ClientSession() as client,
        client.get(at) as answer,
    ):
        assert (answer.status, "127.0.0.1:9" in await answer.text()) == (500, True)


@pytest.mark.parametrize(
    ("method", "path", "host", "passes"),
    [
        ("GET", "/version", "127.0.0.1:8001", True),
        ("GET", "/version", "localhost", True),
        ("DELETE", "/version", "[::1]:8001", True),
        ("GET", "/version", "evil.example:8001", False),
        ("GET", "/version", "localhost.evil.example", False),
        ("GET", "/api/v1/namespaces/x/pods/y/exec", "localhost", False),
    ],
)
def test_only_local_names_and_harmless_paths_pass(method: str, path: str, host: str, passes: bool) -> None:
    assert ACCEPTED.accepts(method, path, host) is passes


async def test_what_the_filter_rejects_never_reaches_the_server() -> None:
    accepted = ACCEPTED._replace(reject_methods=_patterns("reject-methods", "POST,PUT"))
    async with (
        listening(told) as url,
        proxied(url, accepted=accepted) as at,
        aiohttp.ClientSession() as client,
    ):
        async with client.post(at) as answer:
            assert (answer.status, await answer.text()) == (403, "<h3>Unauthorized</h3>")
        async with client.get(at, headers={"Host": "evil.example"}) as answer:
            assert answer.status == 403
    async with (
        listening(told) as url,
        proxied(url, accepted=None) as at,
        aiohttp.ClientSession() as client,
        client.get(at, headers={"Host": "evil.example"}) as answer,
    ):
        assert answer.status == 200


async def test_prefixes_files_and_a_unix_socket(tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text("hello")
    options: dict[str, Any] = {"prefix": "/antrea/", "files": Files(tmp_path, "/static/")}
    async with listening(told) as url, proxied(url, **options) as at, aiohttp.ClientSession() as client:
        async with client.get(f"{at}/antrea/version") as answer:
            assert (await answer.json())["path"] == "/version"
        async with client.get(f"{at}/static/page.txt") as answer:
            assert await answer.text() == "hello"
        async with client.get(f"{at}/version") as answer:
            assert answer.status == 404
    place = Place("", 0, tmp_path / "socket")
    async with listening(told) as url, proxied(url, place) as at:
        assert at == f"http://{place.socket}"
        connector = aiohttp.UnixConnector(str(place.socket))
        async with (
            aiohttp.ClientSession(connector=connector) as client,
            client.get("http://localhost/x") as x,
        ):
            assert (await x.json())["path"] == "/x"
    assert not (tmp_path / "socket").exists()


async def test_an_agent_never_sees_the_callers_token_but_one_of_the_account_antctl() -> None:
    asked: list[tuple[str, str]] = []

    async def kubernetes(request: web.BaseRequest) -> web.StreamResponse:
        asked.append((request.method, request.path))
        if request.method == "GET":
            return web.json_response(
                {"items": [{"metadata": {"namespace": "kube-system", "name": "antrea-agent"}}]}
            )
        assert (await request.json())["spec"] == {"expirationSeconds": 600}
        return web.json_response({"status": {"token": f"made-{len(asked)}"}}, status=201)

    async with listening(kubernetes) as api, listening(told) as url:
        server = Server(Access(url=api, token="mine"), None)
        identity = await asyncio.to_thread(Identity, server, server._replace(access=Access(url=url)))
        async with proxied(url, identity=identity) as at, aiohttp.ClientSession() as client:
            for _ in range(2):
                async with client.get(at) as answer:
                    assert (await answer.json())["as"] == "Bearer made-2"
    assert asked == [
        ("GET", "/apis/apps/v1/daemonsets"),
        ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/antctl/token"),
    ]


@pytest.mark.parametrize(
    ("words", "program", "error"),
    [
        ((), mode.CONTROLLER, "only remote mode is supported for this command"),
        (("-p", "1", "-u", "/x"), mode.REMOTE, "cannot set --unix-socket and --port at the same time"),
        (("--controller", "--agent-node", "n"), mode.REMOTE, "cannot use --controller and --agent-node at the same time"),
        (("--accept-paths", "("), mode.REMOTE, "--accept-paths: '(' is not a regular expression: missing ), unterminated subpattern at position 0"),
    ],
)  # fmt: skip
def test_options_that_contradict_are_one_line(words: tuple[str, ...], program: mode.Mode, error: str) -> None:
    result = CliRunner().invoke(antctl(program), ["proxy", *words], prog_name="antctl")
    assert (result.exit_code, result.stderr) == (1, f"Error: {error}\n")
