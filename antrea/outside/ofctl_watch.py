"""Notices that ovs-vswitchd went and came back, which means that every flow is gone.

A connection to the bridge's management socket ends exactly when the process behind the bridge does, or when the bridge
is made anew; OVSDB does not tell, since ports keep their rows and numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_HEADER = struct.Struct("!BBHI")
_VERSION = 6
"""OpenFlow 1.5"""
_HELLO, _ECHO_REQUEST, _ECHO_REPLY = 0, 2, 3
_RETRY = 0.1
"""Seconds between attempts to connect: the data plane is down meanwhile."""


class SwitchWatch:
    """Watches one bridge through `socket`, <run directory>/<bridge>.mgmt."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.connected = asyncio.Event()
        """The bridge is there, and if it was gone before, `on_restart` has been called."""

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
                    self.connected.set()
                    await self._listen(reader, writer)
                finally:
                    self.connected.clear()
                    writer.close()
            await asyncio.sleep(_RETRY)

    @staticmethod
    async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_HEADER.pack(_VERSION, _HELLO, _HEADER.size, 0))
        await _message(reader)

    @staticmethod
    async def _listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            kind, number, body = await _message(reader)
            if kind == _ECHO_REQUEST:
                writer.write(_HEADER.pack(_VERSION, _ECHO_REPLY, _HEADER.size + len(body), number) + body)


async def _message(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """(type, xid, body) of the next message"""
    _version, kind, length, number = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    return kind, number, await reader.readexactly(length - _HEADER.size)
