"""Detect that ovs-vswitchd has restarted, which means that every flow is gone, and that it no longer responds.

A connection to the bridge's management socket ends exactly when the process behind the bridge does, or when the bridge
is made anew; OVSDB does not show it, since ports keep their rows and numbers. A process that hangs keeps its connections: it
is found by echo requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from antrea.errors import Unavailable
from antrea.outside.vswitch.message import ECHO_REPLY, ECHO_REQUEST, HELLO, RETRY, message, next_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RESPONSE_TIMEOUT = 5.0
"""Seconds for the reply to an echo request: the main thread of ovs-vswitchd, which replies, also applies bundles."""


class SwitchWatch:
    """Watches one bridge through `socket`, <run directory>/<bridge>.mgmt."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.connected = asyncio.Event()
        """The bridge is there, and if it was gone before, `on_restart` has been called."""
        self._writer: asyncio.StreamWriter | None = None
        self._replied = asyncio.Event()

    async def probe(self, within: float = RESPONSE_TIMEOUT) -> None:
        """Wait for the reply to an echo request; a bridge that is not connected is not asked. Raises Unavailable."""
        if self._writer is None:
            return
        self._replied.clear()
        self._writer.write(message(ECHO_REQUEST, 0))
        try:
            async with asyncio.timeout(within):
                await self._replied.wait()
        except TimeoutError:
            raise Unavailable(f"no answer of ovs-vswitchd to an echo request within {within:g} s") from None

    async def run(self, on_restart: Callable[[], None]) -> None:
        """Forever; calls `on_restart` each time the bridge is back after its connection was lost."""
        known = False
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_unix_connection(str(self._socket))
                try:
                    await self._greet(reader, writer)
                    if known:
                        on_restart()
                    known = True
                    self._writer = writer
                    self.connected.set()
                    await self._listen(reader, writer)
                finally:
                    self._writer = None
                    self._replied.set()
                    self.connected.clear()
                    writer.close()
            await asyncio.sleep(RETRY)

    @staticmethod
    async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(message(HELLO, 0))
        await next_message(reader)

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            kind, number, body = await next_message(reader)
            if kind == ECHO_REQUEST:
                writer.write(message(ECHO_REPLY, number, body))
            elif kind == ECHO_REPLY:
                self._replied.set()
