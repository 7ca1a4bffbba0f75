"""Starts TLS handshakes a few at a time, in turn by source: a source that begins many of them hardly delays the others."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CONCURRENT: Final = 32
"""Handshakes that may compute at the same time: the event loop is busy with so many at most before it serves others."""
CLIENT_SECONDS: Final = 0.25
"""A handshake that takes longer waits for its client and needs no processor time: another one may start."""


class HandshakeQueue:
    """Handshakes that wait for their turn, by source, and the number of those that may start now."""

    def __init__(self, concurrent: int = CONCURRENT, client_seconds: float = CLIENT_SECONDS) -> None:
        self._places = concurrent
        self._client_seconds = client_seconds
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """Places to come, for each source with waiting handshakes; the source whose turn is next comes first."""

    @contextlib.asynccontextmanager
    async def turn(self, source: str) -> AsyncIterator[None]:
        """Wait for the turn of this source; its place is free when the block ends or waits for the client."""
        await self._take_place(source)
        timer = asyncio.get_running_loop().call_later(self._client_seconds, self._free_place)
        try:
            yield
        finally:
            if timer.when() > asyncio.get_running_loop().time():
                timer.cancel()
                self._free_place()

    async def _take_place(self, source: str) -> None:
        if self._places:
            self._places -= 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(source, {})[place] = None
        try:
            await place
        except asyncio.CancelledError:
            self._forget(source, place)
            if not place.cancelled():
                self._free_place()
            raise

    def _forget(self, source: str, place: asyncio.Future[None]) -> None:
        places = self._waiting.get(source, {})
        if place in places:
            del places[place]
            if not places:
                del self._waiting[source]

    def _free_place(self) -> None:
        """Give the place to the next source, which then waits behind the others."""
        while self._waiting:
            source, places = next(iter(self._waiting.items()))
            del self._waiting[source]
            place = next(iter(places))
            del places[place]
            if places:
                self._waiting[source] = places
            if not place.done():
                place.set_result(None)
                return
        self._places += 1
