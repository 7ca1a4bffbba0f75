"""Sends a watch: what waits in the watcher's queue, in small pieces, until the client or the server ends it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from aiohttp import web

from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.outside.apiserver.store import Store
    from antrea.outside.apiserver.watcher import Watcher

log = klog.logger(__name__)

PIECE = (16 << 10) - 16
"""Bytes handed to the connection at a time, a TLS record with its chunk's frame; what OpenSSL buffers for a connection stays as large as the largest was."""
STALLED_SECONDS = 60.0
"""A client that takes no piece for so long is cut off, however little waits for it."""
MIN_SECONDS, MAX_SECONDS = 7200.0, 14400.0
"""Lifetime of a watch without timeoutSeconds: random between these, so that not all reconnect at once."""


def lifetime(timeout: int | None) -> float:
    """Seconds."""
    return float(timeout) if timeout else random.uniform(MIN_SECONDS, MAX_SECONDS)  # noqa: S311


async def send(
    request: web.Request, store: Store, begin: Callable[[], Watcher], seconds: float
) -> web.StreamResponse:
    """The response, once the watch has ended: by its time, by the client, or because it was cut off."""
    response = web.StreamResponse(
        headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
    )
    response.enable_chunked_encoding()
    await response.prepare(request)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    if not await store.filled(end - loop.time()):
        await response.write_eof()
        return response
    watcher = begin()
    try:
        await _pump(request, response, watcher, end)
    finally:
        store.forget(watcher)
    return response


async def _pump(request: web.Request, response: web.StreamResponse, watcher: Watcher, end: float) -> None:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] | None = None
    writing: asyncio.Timeout | None = None

    def wake() -> None:
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        if watcher.cut and writing is not None:
            writing.reschedule(loop.time())

    watcher.wake = wake
    alarm = loop.call_at(end, wake)
    try:
        while not watcher.cut and loop.time() < end:
            piece = watcher.pop(PIECE)
            if piece and not _busy(request):
                await response.write(piece)
                continue
            if piece:
                async with asyncio.timeout(STALLED_SECONDS) as writing:
                    await response.write(piece)
                writing = None
                continue
            waiting = loop.create_future()
            await waiting
        async with asyncio.timeout(1):
            await response.write_eof()
    except TimeoutError:
        # what the client has not taken by now would only be kept in memory
        if request.transport:
            request.transport.abort()
    finally:
        alarm.cancel()
    if watcher.cut:
        log.info(
            "Closed a watch", why=watcher.cut, node=watcher.selection.node or "", peer=request.remote or ""
        )


def _busy(request: web.Request) -> bool:
    """Whether the connection still has something to send, so that more may have to wait; most have not."""
    return request.transport is None or request.transport.get_write_buffer_size() > 0
