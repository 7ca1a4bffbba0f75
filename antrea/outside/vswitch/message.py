"""How messages of OpenFlow 1.5 are put on a connection to a bridge's management socket, and taken off it.

Source: OpenFlow Switch Specification 1.5.1, 7.1
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

HELLO, ECHO_REQUEST, ECHO_REPLY = 0, 2, 3
RETRY = 0.1
"""Seconds between attempts to connect: the data plane is down meanwhile."""

_HEADER = struct.Struct("!BBHI")
_VERSION = 6


def message(kind: int, number: int, body: bytes = b"") -> bytes:
    """The whole message with this xid."""
    return _HEADER.pack(_VERSION, kind, _HEADER.size + len(body), number) + body


async def next_message(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """(type, xid, body). Raises ConnectionError for what is not a message, asyncio.IncompleteReadError."""
    version, kind, length, number = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if version != _VERSION or length < _HEADER.size:
        raise ConnectionError(f"a message of OpenFlow version {version} and {length} bytes")
    return kind, number, await reader.readexactly(length - _HEADER.size)
