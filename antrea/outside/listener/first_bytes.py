"""Waits for a client's first bytes in the kernel's buffer, so that a silent client costs a socket and no TLS state."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

RECORD_HEADER: Final = 5
HANDSHAKE, VERSION = 22, 3
"""The type of the first record, and its major version."""
MAX_RECORD: Final = 1 << 14
"""Bytes of a record (RFC 8446 section 5.1)."""


async def wait_for_byte(loop: asyncio.AbstractEventLoop, plain: socket.socket) -> None:
    """Return when the client has sent a byte, or has ended the connection."""
    sent = loop.create_future()

    def readable() -> None:
        loop.remove_reader(plain)
        if not sent.done():
            sent.set_result(None)

    loop.add_reader(plain, readable)
    try:
        await sent
    finally:
        if plain.fileno() >= 0:
            loop.remove_reader(plain)


async def wait_for_client_hello(loop: asyncio.AbstractEventLoop, plain: socket.socket) -> None:
    """Return when the first record of TLS is complete. Raises OSError: the client ended before, or does not use TLS."""
    size = RECORD_HEADER
    while True:
        # the kernel wakes us once so many bytes are there: a client that sends byte by byte costs no turns
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        await wait_for_byte(loop, plain)
        head = plain.recv(size, socket.MSG_PEEK)
        if len(head) < size:
            raise ConnectionError("the client ended the connection before its TLS handshake")
        if head[0] != HANDSHAKE or head[1] != VERSION:
            raise ConnectionError("the client does not use TLS")
        length = RECORD_HEADER + int.from_bytes(head[3:RECORD_HEADER])
        if length <= size:
            break
        if length > RECORD_HEADER + MAX_RECORD:
            raise ConnectionError(f"the first TLS record has {length} bytes, more than {MAX_RECORD}")
        size = length
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
