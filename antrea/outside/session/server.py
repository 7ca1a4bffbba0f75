"""Takes sessions over TCP and TLS, each in a task of its own, and counts those that are malformed and connections that are none."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from antrea.errors import Invalid
from antrea.outside.listener.listener import Limits, Listener
from antrea.outside.listener.listening_socket import listen
from antrea.outside.listener.source import network
from antrea.outside.log import klog

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

log = klog.logger(__name__)

LIMITS: Final = Limits(connections=4096, new=1000, strangers=4096, idle_seconds=10.0, last_seconds=0.0)
"""Sessions begin to send at once. Without certificates no session can prove an identity."""
LOG_SECONDS: Final = 60.0
"""Between two lines of the log about one source."""
MAX_LOGGED: Final = 1024
"""Sources whose last line is remembered."""
READ_BUFFER: Final = 16 << 10
"""Bytes of a session that wait to be read; twice as many at most."""


class Session:
    """One connection, whose client is trusted with nothing before `prove`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener: Listener
    ) -> None:
        self.reader, self.writer, self._listener = reader, writer, listener
        self._peer = writer.get_extra_info("peername")
        self.address = str(self._peer[0]).partition("%")[0]
        """The client's address, without the interface of a link-local one."""
        context = writer.get_extra_info("sslcontext")
        if context is not None and context.verify_mode == ssl.CERT_REQUIRED:
            self.prove()

    def mark_request(self) -> None:
        """Note that a whole request or message has come; the connection is idle again."""
        self._listener.note_request(self._peer)
        self._listener.answered(self._peer)

    def prove(self, user: str = "") -> None:
        """Note that the client has proved its identity; a `user` has a bounded number of sessions from one source."""
        self._listener.note_request(self._peer)
        self._listener.proved(self._peer, f"{user} at {network(self.address)}" if user else "")


class SessionServer:
    """A listener; `serve_session` is the protocol of a session."""

    def __init__(self, name: str, limits: Limits = LIMITS) -> None:
        """`name` is shown in the log."""
        self._name, self._limits = name, limits
        self._tasks: set[asyncio.Task[None]] = set()
        self._tls: ssl.SSLContext | None = None
        self._listener: Listener | None = None
        self.sessions = 0
        """Open ones."""
        self.refused = 0
        """Messages that were malformed."""
        self.rejected = 0
        """Connections that were no session: no certificate of ours, no TLS, too slow, too many at a time."""
        self.interrupted = 0
        """Sessions that a reset, a time limit or an end within a message has ended, so that what was sent last may be lost."""
        self._logged: OrderedDict[str, float] = OrderedDict()
        """When a line of the log was about a source; the one that was logged longest ago comes first."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """TLS of sessions that begin from now on; None: they are not encrypted."""
        return self._tls

    @tls.setter
    def tls(self, context: ssl.SSLContext | None) -> None:
        self._tls = context
        if self._listener:
            self._listener.tls = context

    async def serve_session(self, session: Session) -> None:
        """Serve until the session ends. Raises Invalid if it is malformed, OSError."""
        raise NotImplementedError

    async def serve_streams(self, host: str, port: int, ready: Callable[[int], None]) -> None:
        """Serve until cancelled; `ready` is given the port. Raises Unavailable if it is taken."""
        listening = listen(port, host)
        ready(listening.getsockname()[1])
        await self.serve_at(listening)

    async def serve_at(self, listening: socket.socket) -> None:
        """Serve on this socket until cancelled."""
        self._listener = Listener(listening, self._tls, self._protocol, self._limits, self._reject)
        try:
            await self._listener.run()
        finally:
            await self.end_sessions()

    async def end_sessions(self) -> None:
        """End all that are open."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listener:
            self._listener.end()

    def _reject(self, address: str, why: str) -> None:
        self.rejected += 1
        if self._is_logged(address):
            log.warning("Rejected a session", server=self._name, peer=address, err=why)

    def _is_logged(self, address: str) -> bool:
        """Whether there may be a line about this source now: one each LOG_SECONDS, however often it tries."""
        source, now = network(address), time.monotonic()
        if now - self._logged.get(source, -LOG_SECONDS) < LOG_SECONDS:
            return False
        self._logged.pop(source, None)
        self._logged[source] = now
        if len(self._logged) > MAX_LOGGED:
            self._logged.popitem(last=False)
        return True

    def _protocol(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=READ_BUFFER), self._begin)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._listener is None or not writer.get_extra_info("peername"):
            # the client has reset the connection meanwhile
            writer.transport.abort()
            return
        task = asyncio.create_task(
            self._session(Session(reader, writer, self._listener)), name=f"session of {self._name}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _session(self, session: Session) -> None:
        self.sessions += 1
        try:
            await self.serve_session(session)
        except Invalid as error:
            self.refused += 1
            if self._is_logged(session.address):
                log.warning(
                    "Ended a malformed session", server=self._name, peer=session.address, err=str(error)
                )
        except asyncio.IncompleteReadError as error:
            # without a part of a message it is the end that the client meant
            self.interrupted += bool(error.partial)
        except OSError:
            self.interrupted += 1
        finally:
            self.sessions -= 1
            session.writer.transport.abort()
