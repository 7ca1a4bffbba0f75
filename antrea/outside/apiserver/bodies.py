"""Reads the bodies of all requests within one budget of memory: who has proved nothing makes room first."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from antrea.outside.apiserver.authentication import PROVED
from antrea.outside.apiserver.status import ApiError
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = klog.logger(__name__)

MAX_BYTES = 64 << 20
"""Maximum size of all bodies that are being read or answered."""
MAX_OF_STRANGERS = 24 << 20
"""Part of it for requests without a proof of identity, or where none is required; the API server calls webhooks so."""
STRANGERS_SECONDS = 10.0
"""Timeout of such a body from its first to its last byte: twice what the API server waits for a whole answer."""
_BODY = web.RequestKey("antrea_body", bytes)


class _HeldBody:
    def __init__(self, request: web.Request) -> None:
        self.known = request.get(PROVED, False)
        self.transport = request.transport
        self.size = 0
        self.complete = False


class Bodies:
    """Bodies of one server; `read` holds one until its request is answered."""

    def __init__(
        self,
        most: int = MAX_BYTES,
        of_strangers: int = MAX_OF_STRANGERS,
        seconds: float = STRANGERS_SECONDS,
    ) -> None:
        self._most = most
        self._of_strangers = of_strangers
        self._seconds = seconds
        self._held: dict[_HeldBody, None] = {}
        """In the order in which they began."""

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return sum(held.size for held in self._held)

    @asynccontextmanager
    async def read(self, request: web.Request, most: int) -> AsyncIterator[bytes]:
        """The whole body. Raises HTTP error 413 above `most` bytes, Answered 429 without room, TimeoutError for a slow stranger."""
        if (known := request.get(_BODY)) is not None:
            yield known
            return
        if (request.content_length or 0) > most:
            raise too_large(most, request.content_length or 0)
        held = _HeldBody(request)
        self._held[held] = None
        try:
            async with asyncio.timeout(None if held.known else self._seconds):
                request[_BODY] = body = await self._whole(request, held, most)
            held.complete = True
            yield body
        finally:
            self._held.pop(held, None)

    async def _whole(self, request: web.Request, held: _HeldBody, most: int) -> bytes:
        pieces: list[bytes] = []
        async for piece in request.content.iter_any():
            held.size += len(piece)
            if held.size > most:
                raise too_large(most, held.size)
            pieces.append(piece)
            while self._is_full(held):
                self._drop_one(held)
        return b"".join(pieces)

    def _is_full(self, held: _HeldBody) -> bool:
        if held not in self._held:
            raise ConnectionResetError("others needed the memory of this body")
        of_strangers = 0 if held.known else sum(other.size for other in self._held if not other.known)
        return self.held > self._most or of_strangers > self._of_strangers

    def _drop_one(self, held: _HeldBody) -> None:
        """The stranger goes whose body has been coming for longest. Raises Answered if there is none."""
        oldest = next(
            (other for other in self._held if other is not held and not (other.known or other.complete)), None
        )
        if oldest is None:
            raise ApiError(
                429, "the bodies of other requests take all the memory there is for them, try again"
            )
        del self._held[oldest]
        log.v(2).info("Dropped an incomplete request body", bytes=oldest.size)
        if oldest.transport:
            oldest.transport.abort()


def too_large(most: int, size: int) -> web.HTTPRequestEntityTooLarge:
    """The error 413."""
    return web.HTTPRequestEntityTooLarge(most, size, text=f"more than {most} bytes")


BODIES = Bodies()
"""Bodies of this process, which has one server."""
