"""Takes sessions over TCP and TLS, each in a task of its own, and counts those that are none or end by a fault."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from antrea.errors import Invalid, Unavailable, words
from antrea.outside.log import klog

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

log = klog.logger(__name__)

MOST_SESSIONS: Final = 4096
"""At a time."""
HANDSHAKE_SECONDS: Final = 10.0
ACCEPT_PAUSE: Final = 1.0
BACKLOG: Final = 512


class SessionServer:
    """A listener; `serve_session` is the protocol of a session."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.tls: ssl.SSLContext | None = None
        """Of sessions that begin from now on; None: they are not encrypted."""
        self.sessions = 0
        """Open ones."""
        self.refused = 0
        """Messages that were malformed."""
        self.rejected = 0
        """Connections that were no session: no certificate of ours, no TLS, too many at a time."""
        self._last_rejected = ("", "")

    async def serve_session(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str
    ) -> None:
        """Until the session ends. Raises Invalid if it is malformed, OSError."""
        raise NotImplementedError

    async def serve_streams(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        """Until cancelled; `ready` is given the port. Raises Unavailable if it is taken."""
        try:
            listening = bound_socket(host, port, socket.SOCK_STREAM)
        except OSError as why:
            raise Unavailable(f"port {port} for records of connections: {why}") from why
        with listening:
            ready(listening.getsockname()[1])
            try:
                await self._accept(listening)
            finally:
                await self.end_sessions()

    async def end_sessions(self) -> None:
        """End all that are open."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as why:
                # too many open files, or a peer that has gone: others go on
                log.warning("Failed to accept a session of records", err=str(why))
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            self._begin(accepted, str(peer[0]).partition("%")[0])

    def _begin(self, accepted: socket.socket, peer: str) -> None:
        if len(self._tasks) >= MOST_SESSIONS:
            self._reject(peer, f"{MOST_SESSIONS} sessions are open")
            accepted.close()
            return
        task = asyncio.create_task(self._session(accepted, peer), name="session of records")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reject(self, peer: str, why: str) -> None:
        self.rejected += 1
        # a peer that tries again and again is one line
        if (peer, why) != self._last_rejected:
            log.warning("Rejected a session of records", peer=peer, err=why)
        self._last_rejected = (peer, why)

    async def _session(self, accepted: socket.socket, peer: str) -> None:
        loop, tls = asyncio.get_running_loop(), self.tls
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=tls, ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None
            )
        except OSError as why:
            self._reject(peer, words(why))
            return
        self.sessions += 1
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await self.serve_session(reader, writer, peer)
        except Invalid as no:
            self.refused += 1
            log.warning("Ended a session of records", peer=peer, err=str(no))
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            self.sessions -= 1
            transport.abort()


def bound_socket(host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    """Bound to an address, or to all of both families, or of IPv4 where there is no IPv6; of streams it listens."""
    version6 = ":" in host or (not host and socket.has_dualstack_ipv6())
    made = socket.socket(socket.AF_INET6 if version6 else socket.AF_INET, kind)
    made.setblocking(False)
    try:
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if version6 and not host:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind((host, port))
        if kind == socket.SOCK_STREAM:
            made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made
