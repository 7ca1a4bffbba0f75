"""The HTTPS server of a program's own API."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
import pytest

from antrea.errors import Invalid, Unavailable
from antrea.outside.apiserver.authentication import Authentication
from antrea.outside.apiserver.authorization import Authorization
from antrea.outside.apiserver.objects import Objects
from antrea.outside.apiserver.server import Server
from antrea.outside.http.handlers import HEALTH, health, json_answer, loglevel, metrics_of
from antrea.outside.http.loopback_token import write_token
from antrea.outside.listener.listening_socket import listen
from antrea.outside.log import klog
from antrea.outside.tls import authority
from antrea.outside.tls.server_context import self_signed, server_tls  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import msgspec
    from aiohttp import web

    from antrea.outside.apiserver.objects import Question

CERTIFICATE = self_signed(("antrea-test", "localhost"), ("127.0.0.1",))
TROUBLE = {"ovs": ""}


async def hello(_: web.Request) -> web.StreamResponse:
    return json_answer({"hello": "you"})


async def metrics(_: web.Request) -> web.StreamResponse:
    return metrics_of("")


class Nobody:
    async def answer(self, question: Question) -> msgspec.Struct:
        raise AssertionError(question)


class Served(NamedTuple):
    session: aiohttp.ClientSession
    url: str
    port: int


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    checks = {"ovs": lambda: TROUBLE["ovs"]}
    gets = {
        "/hello": hello,
        "/metrics": metrics,
        "/loglevel": loglevel,
        **health("healthz", {}),
        **health("livez", checks),
        **health("readyz", {**checks, "engine": lambda: ""}),
    }
    server = Server(
        Authentication("secret", None),
        Authorization((f"/{name}" for name in HEALTH), None),
        Objects((), Nobody()),
        handlers={
            ("PUT", "/loglevel"): loglevel,
            **{("GET", path): handler for path, handler in gets.items()},
        },
        openapi={},
    )
    listening = listen(0)
    port = listening.getsockname()[1]
    trusted = ssl.create_default_context(cadata=CERTIFICATE.certificate_pem)
    connector = aiohttp.TCPConnector(ssl=trusted)
    headers = {"Authorization": "Bearer secret"}
    running = asyncio.create_task(server.run(listening, server_tls(CERTIFICATE)))
    try:
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            yield Served(session, f"https://127.0.0.1:{port}", port)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def get(session: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, str]:
    async with session.get(url, headers=headers) as response:
        return response.status, await response.text()


async def test_serving_health_is_everybodys_and_all_else_needs_the_token() -> None:
    async with served() as (session, url, _):
        assert await get(session, f"{url}/hello") == (200, '{"hello":"you"}\n')
        for wrong, status in (
            ("", 403),
            ("Bearer wrong", 401),
            ("Basic secret", 403),
            ("Bearer sécret", 401),
        ):
            for path in ("hello", "metrics", "nothing"):
                assert (await get(session, f"{url}/{path}", Authorization=wrong))[0] == status
        assert (await get(session, f"{url}/healthz", Authorization=""))[0] == 200
        assert (await get(session, f"{url}/nothing"))[0] == 404


async def test_serving_health_says_which_check_fails_and_why() -> None:
    async with served() as (session, url, _):
        assert await get(session, f"{url}/readyz?verbose") == (
            200,
            "[+]ping ok\n[+]ovs ok\n[+]engine ok\nreadyz check passed\n",
        )
        TROUBLE["ovs"] = "not connected"
        try:
            assert await get(session, f"{url}/readyz") == (
                500,
                "[+]ping ok\n[-]ovs failed: not connected\n[+]engine ok\nreadyz check failed\n",
            )
            assert (await get(session, f"{url}/livez"))[0] == 500
            assert await get(session, f"{url}/healthz") == (200, "ok")
        finally:
            TROUBLE["ovs"] = ""


async def test_serving_health_of_one_check_is_asked_by_its_path_and_excluded_by_its_name() -> None:
    warning = 'warn: some health checks cannot be excluded: no matches for "a", "b"'
    async with served() as (session, url, _):
        TROUBLE["ovs"] = "not connected"
        try:
            assert await get(session, f"{url}/livez/ping") == (200, "ok")
            assert await get(session, f"{url}/livez/ovs") == (500, "internal server error: not connected\n")
            assert await get(session, f"{url}/readyz/engine") == (200, "ok")
            assert (await get(session, f"{url}/livez/engine"))[0] == 404
            assert (await get(session, f"{url}/livez/ping", Authorization=""))[0] == 403
            assert await get(session, f"{url}/readyz?exclude=ovs") == (200, "ok")
            assert await get(session, f"{url}/readyz?exclude=ovs&exclude=b&exclude=a&verbose") == (
                200,
                f"[+]ping ok\n[+]ovs excluded: ok\n[+]engine ok\n{warning}\nreadyz check passed\n",
            )
        finally:
            TROUBLE["ovs"] = ""


async def test_serving_metrics_are_those_of_the_process() -> None:
    async with served() as (session, url, _):
        status, text = await get(session, f"{url}/metrics")
        assert status == 200
        assert "process_resident_memory_bytes" in text


async def test_serving_loglevel_shows_and_sets_v() -> None:
    before = klog.verbosity()
    try:
        async with served() as (session, url, _):
            async with session.put(f"{url}/loglevel?level=3") as response:
                assert response.status == 200
            assert await get(session, f"{url}/loglevel") == (200, "3\n")
            for wrong in ("x", "-1", "11"):
                assert (await get(session, f"{url}/loglevel?level={wrong}"))[0] == 400
            assert klog.verbosity() == 3
    finally:
        klog.set_verbosity(before)


async def test_serving_a_taken_port_is_one_clear_line() -> None:
    async with served() as (_, _, port):
        with pytest.raises(Unavailable, match=rf"^port {port} cannot be opened: Address already in use"):
            listen(port)


async def test_serving_reaches_both_families() -> None:
    async with served() as (session, _, port):
        if socket.has_dualstack_ipv6():
            async with session.get(f"https://[::1]:{port}/healthz", server_hostname="localhost") as answer:
                assert answer.status == 200


def test_serving_the_token_is_fresh_each_time_and_for_root_only(tmp_path: Path) -> None:
    path = tmp_path / "apiserver" / "loopback-client-token"
    first, second = write_token(path), write_token(path)
    assert first != second
    assert path.read_text() == second
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="token file"):
        write_token(tmp_path / "file" / "token")


def test_serving_tls_follows_the_configuration() -> None:
    context = server_tls(
        CERTIFICATE,
        min_version="VersionTLS12",
        cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256",
    )
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    names = [row["name"] for row in context.get_ciphers() if not row["name"].startswith("TLS_")]
    assert names == ["ECDHE-ECDSA-AES128-GCM-SHA256"]
    assert server_tls(CERTIFICATE, min_version="VersionTLS13").minimum_version is ssl.TLSVersion.TLSv1_3
    with pytest.raises(Invalid, match=r"^tlsCipherSuites: 'TLS_NULL' is not a cipher suite"):
        server_tls(CERTIFICATE, cipher_suites="TLS_NULL")


@pytest.mark.parametrize(
    "suite", ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_256_GCM_SHA384"]
)
@pytest.mark.parametrize("made", ["alone", "by an authority"])
def test_serving_suites_of_rsa_are_negotiated(suite: str, made: str) -> None:
    """As with upstream's certificates: a list of such suites would leave a key of an elliptic curve without any."""
    pair = CERTIFICATE if made == "alone" else authority.make(("localhost",), ())
    server, client = server_tls(pair, cipher_suites=suite), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=pair.certificate_pem)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers("ALL")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    chosen = ends[0].cipher()
    assert chosen is not None
    assert chosen[0] == server.get_ciphers()[-1]["name"]
