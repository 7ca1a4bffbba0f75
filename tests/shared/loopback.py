"""Whatever answers HTTP requests, on loopback for as long as a test wants it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from antrea.outside.kube.access import Access
from antrea.outside.kube.client import Kube

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The URL of a server whose every request gets its answer there."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client_of(answer: Answer) -> AsyncIterator[Kube]:
    """A client of such a server, which takes it for kube-apiserver."""
    async with answering(answer) as url, Kube(Access(url)) as kube:
        yield kube
