"""The end of a listener at the very moment in which a client has finished its TLS handshake."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from typing import TYPE_CHECKING

from antrea.outside.listener.listener import Limits, Listener
from antrea.outside.tls.server_context import self_signed, server_tls

if TYPE_CHECKING:
    from collections.abc import Iterator

SILENT = 60.0
"""Seconds after which the client goes in any case."""


@contextlib.contextmanager
def silent_client(port: int) -> Iterator[None]:
    """Shakes hands and says no more."""
    over, trusts = threading.Event(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusts.check_hostname, trusts.verify_mode = False, ssl.CERT_NONE

    def run() -> None:
        with trusts.wrap_socket(socket.create_connection(("127.0.0.1", port))):
            over.wait(SILENT)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def heard() -> bool:
    """Whether a new server of this process is told of its client."""
    called = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        with socket.create_connection(server.sockets[0].getsockname()), contextlib.suppress(TimeoutError):
            await asyncio.wait_for(called.wait(), 30)
        return called.is_set()


async def test_a_listener_that_ends_in_a_handshake_leaves_the_descriptor_to_the_next_socket() -> None:
    """What asyncio still held of the connection made that socket deaf."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]

    class Inside(asyncio.Protocol):
        def connection_made(self, _: asyncio.BaseTransport) -> None:
            serving.cancel()

    tls = server_tls(self_signed(("localhost",), ("127.0.0.1",)))
    serving = asyncio.create_task(Listener(listening, tls, Inside, Limits()).run())
    with silent_client(port):
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        # the descriptors of the listener and of the connection are free now, and taken one after the other
        with socket.socket():
            assert await heard()
        assert await heard()
