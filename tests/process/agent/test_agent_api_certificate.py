"""The certificate of the agent's API is renewed while it serves: published first, and no connection ends for it."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from antrea.agent.api.certificate import DAY, ApiCertificate, certificate
from antrea.errors import Unavailable
from antrea.outside.tls.server_context import load_pair, server_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from antrea.outside.tls.server_context import Certificate


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


class Api:
    """A server with the certificate, and what clients can read of whom to trust."""

    def __init__(self, kept: ApiCertificate) -> None:
        self.kept = kept
        self.tls = server_tls(kept.pair)
        self.published = kept.trusted
        self.presented: list[Certificate] = [kept.pair]
        self.port = 0
        self.is_away = False
        """No object can be written."""
        self.reads = 0

    def present(self, pair: Certificate) -> None:
        assert pair.certificate_pem in self.published or self.is_away
        load_pair(self.tls, pair)
        self.presented.append(pair)

    def read(self) -> str:
        """As the object is written in the meantime."""
        self.reads += 1
        if not self.is_away:
            self.published = self.kept.trusted
        return self.published

    async def connect(self, trusted: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cadata=trusted)
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname="antrea-agent-api"
        )


@asynccontextmanager
async def serving(kept: ApiCertificate) -> AsyncIterator[Api]:
    api = Api(kept)

    async def hello(_: web.BaseRequest) -> web.Response:
        return web.Response(text="hello")

    runner = web.ServerRunner(web.Server(hello))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=api.tls)
    await site.start()
    api.port = runner.addresses[0][1]
    renewing = asyncio.create_task(kept.run(api.present, api.read, look=0.01, patience=0.2, poll=0.01))
    try:
        yield api
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await runner.cleanup()


async def ask(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    reader, writer = connection
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return (await reader.readuntil(b"hello"))[:15]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_certificate_is_renewed_in_time_and_what_stands_goes_on() -> None:
    clock = Clock()
    kept = ApiCertificate(certificate(), clock=clock)
    async with serving(kept) as api:
        first = kept.pair
        old = await api.connect(api.published)
        assert await ask(old) == b"HTTP/1.1 200 OK"
        clock.now += 274 * DAY
        await asyncio.sleep(0.1)
        assert api.presented == [first]
        clock.now += DAY
        await until(lambda: len(api.presented) == 2)
        await until(lambda: api.read() == kept.pair.certificate_pem != first.certificate_pem)
        assert await ask(old) == b"HTTP/1.1 200 OK"
        new = await api.connect(api.published)
        assert await ask(new) == b"HTTP/1.1 200 OK"
        shown = new[1].get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert ssl.DER_cert_to_PEM_cert(shown) == kept.pair.certificate_pem
        for _, writer in (old, new):
            writer.close()


async def test_a_certificate_of_a_clock_that_was_far_ahead_is_renewed_at_once() -> None:
    clock = Clock()
    kept = ApiCertificate(certificate(), clock=clock)
    async with serving(kept) as api:
        clock.now -= 2 * DAY
        await until(lambda: len(api.presented) == 2)


async def test_what_cannot_be_published_is_served_only_when_the_old_one_is_about_to_end() -> None:
    clock = Clock()
    kept = ApiCertificate(certificate(), clock=clock)
    async with serving(kept) as api:
        api.is_away = True
        clock.now += 300 * DAY
        await until(lambda: api.reads > 20)  # it asks up to 20 times for a new one, which it then gives up
        assert len(api.presented) == 1
        clock.now += 64 * DAY
        await until(lambda: len(api.presented) == 2)


async def test_a_certificate_that_cannot_be_made_is_tried_again() -> None:
    clock, calls = Clock(), itertools.count()

    def make() -> Certificate:
        if next(calls) == 1:
            raise Unavailable("a serving certificate")
        return certificate()

    kept = ApiCertificate(make(), make, clock)
    async with serving(kept) as api:
        clock.now += 300 * DAY
        await until(lambda: len(api.presented) == 2)
