"""Accepts connections of a bounded number, with or without TLS, and drops those that do not get to their first request in time.

Clients that have sent no request yet, or have not proved their identity, take nothing from others: of too many such connections one of
the source with the most is dropped, the one that has been idle for longest. A connection without a first byte, and with TLS without a
complete first record, costs a socket alone. TLS handshakes start in turn by source, a few at a time. A connection's TLS buffers are
small, because thousands of watches are open and idle (asyncio's own take 256 KiB each). Connections that are
ready for requests may wait as long as idle ones: clients keep spare connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from typing import TYPE_CHECKING, cast

import msgspec

from antrea.errors import describe_error
from antrea.outside.listener.connection_pool import ConnectionPool, first_idle, source_of
from antrea.outside.listener.first_bytes import wait_for_byte, wait_for_client_hello
from antrea.outside.listener.handshake_queue import HandshakeQueue
from antrea.outside.log import klog
from antrea.outside.tls import buffer as tls_buffer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from antrea.outside.listener.connection_pool import Peer

log = klog.logger(__name__)

TLS_BUFFER = 8 << 10
WRITE_BUFFER = 32 << 10
LOOK_SECONDS = 0.01
OUT_OF_FILES_SECONDS = 0.1
ACCEPTED_AT_ONCE = 128
"""Connections that are accepted before the event loop serves others."""
TOO_MANY, TOO_SLOW = "too many connections at a time", "no request in time"


class Limits(msgspec.Struct, frozen=True):
    """How much clients without a proof of identity can take."""

    connections: int = 20_000
    new: int = 1000
    """Connections without a request so far."""
    strangers: int = 2000
    """Connections with requests, but without a proof of identity so far; the API server calls webhooks over such."""
    of_one: int = 512
    """Connections of one user from one address: an agent has some ten, and a token does not entitle to all places."""
    first_request_seconds: float = 10.0
    """Timeout from the handshake of TCP to the end of that of TLS, and from the first byte of the first request to its last header."""
    idle_seconds: float = 120.0
    """Longer than clients keep an idle connection (90 s in Go), so that none asks over one that is just being closed."""
    last_seconds: float = 0.5
    """For the first request of who was accepted when the server ends."""


class _Connection:
    def __init__(self, plain: socket.socket, deadline: float) -> None:
        self.plain: socket.socket | None = plain
        """Ours to close until it is asyncio's: its transport would hold a descriptor that is another socket's by then."""
        self.deadline = deadline
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None

    def abort(self) -> None:
        """At once, without a TLS farewell."""
        if self.transport:
            # Python before 3.11.4 raises for a transport of TLS that was closed twice, which is ending by itself
            with contextlib.suppress(AttributeError):
                self.transport.abort()
        elif self.task:
            self.task.cancel()


class Listener:
    """Serves `protocol` on a listening socket with this TLS, or in the clear; the protocol calls `asked` for each request, then `proved` or `answered`."""

    def __init__(
        self,
        listening: socket.socket,
        tls: ssl.SSLContext | None,
        protocol: Callable[[], asyncio.Protocol],
        limits: Limits,
        rejected: Callable[[str, str], None] = lambda _address, _why: None,
    ) -> None:
        """`rejected` is given the address of a client and why its connection ended before a request."""
        self._limits = limits
        self._listening = listening
        self.tls = tls
        """For connections that begin from now on."""
        self._protocol = protocol
        self._rejected = rejected
        self._new = ConnectionPool(limits.new)
        self._strangers = ConnectionPool(limits.strangers)
        self._handshakes = HandshakeQueue()
        self._busy: set[Peer] = set()
        """Peers whose request is being answered."""
        self._holders: dict[Peer, str] = {}
        """Authenticated holders of connections, where their number is limited."""
        self._held: dict[str, dict[Peer, None]] = {}
        """The connections of each; those that are idle for longest come first."""
        self._all: dict[Peer, _Connection] = {}
        self.dropped = 0
        """Connections that ended because they were too many or too slow."""

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._all)

    def note_request(self, peer: Peer) -> None:
        """A whole request has come over this connection; `proved` or `answered` is called with its outcome."""
        if self._new.discard(peer):
            self._strangers.add(peer)
            if self._strangers.exceeds:
                self._drop(self._strangers.next_to_drop(self._busy, besides=peer), TOO_MANY)
        if peer in self._all:
            self._busy.add(peer)

    def proved(self, peer: Peer, holder: str = "") -> None:
        """Note that this connection is authenticated; as `holder`, unless empty, its user may have a limited number of connections."""
        self._strangers.discard(peer)
        if peer not in self._all or holder == self._holders.get(peer, ""):
            return
        self._release(peer)
        if holder:
            self._holders[peer] = holder
            held = self._held.setdefault(holder, {})
            held[peer] = None
            if len(held) > self._limits.of_one:
                self._drop(first_idle(held, self._busy, peer), TOO_MANY)

    def answered(self, peer: Peer) -> None:
        """The connection is idle now."""
        self._busy.discard(peer)
        if self._strangers.discard(peer):
            self._strangers.add(peer)
        elif (holder := self._holders.get(peer)) is not None:
            held = self._held[holder]
            del held[peer]
            held[peer] = None

    async def run(self) -> None:
        """Run until cancelled; then close idle connections after a moment in which a client may still send a request."""
        tls_buffer.keep_small(TLS_BUFFER)
        _many_files()
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        sweeping = asyncio.ensure_future(self._sweep())
        # sock_accept would lose a connection if it is cancelled as it takes it
        loop.add_reader(self._listening, self._accept)
        try:
            await asyncio.Event().wait()
        finally:
            sweeping.cancel()
            loop.remove_reader(self._listening)
            self._listening.close()
            await self._settled()
            for peer in self._new:
                self._all[peer].abort()

    def _accept(self) -> None:
        """Accept the waiting connections. The kernel queues them without regard to their source: behind a flood the others would wait."""
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                plain, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                # out of files: those who wait longest without asking make room
                log.warning("Failed to accept a connection", err=error.strerror or str(error))
                self._drop_oldest()
                loop.remove_reader(self._listening)
                loop.call_later(OUT_OF_FILES_SECONDS, self._accept_again)
                return
            plain.setblocking(False)
            self._add_connection(plain, peer, loop.time())

    def _accept_again(self) -> None:
        if self._listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    async def _settled(self) -> None:
        """Wait until all accepted connections have sent a request, or `last_seconds` are over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._limits.last_seconds
        while self._new and loop.time() < until:  # noqa: ASYNC110 (once, at the end)
            await asyncio.sleep(LOOK_SECONDS)

    def end(self) -> None:
        """Drop all connections, even those in use."""
        for connection in list(self._all.values()):
            connection.abort()

    def _add_connection(self, plain: socket.socket, peer: Peer, now: float) -> None:
        if self._new.is_full or len(self._all) >= self._limits.connections:
            self._drop_oldest()
        if len(self._all) >= self._limits.connections:
            self.dropped += 1
            self._rejected(_address(peer), TOO_MANY)
            plain.close()
            return
        connection = _Connection(plain, now + self._limits.first_request_seconds)
        self._all[peer] = connection
        self._new.add(peer)
        connection.task = asyncio.ensure_future(self._serve(connection, plain, peer))
        # also if it is cancelled before it began
        connection.task.add_done_callback(lambda _: self._ended(connection, peer))

    def _drop_oldest(self) -> None:
        self._drop(self._new.next_to_drop() or self._strangers.next_to_drop(self._busy), TOO_MANY)

    def _drop(self, peer: Peer | None, why: str) -> None:
        """Its place is free at once, whenever the connection itself is gone."""
        if peer is None:
            return
        self.dropped += 1
        self._rejected(_address(peer), why)
        connection = self._all[peer]
        self._forget(peer, connection)
        connection.abort()

    async def _serve(self, connection: _Connection, plain: socket.socket, peer: Peer) -> None:
        loop = asyncio.get_running_loop()

        def inside() -> asyncio.Protocol:
            connection.plain = None
            return _Inside(self._protocol(), connection, self._limits, lambda: self._forget(peer, connection))

        try:
            _tuned(plain)
            tls = self.tls
            if not tls:
                await wait_for_byte(loop, plain)
                await loop.connect_accepted_socket(inside, plain)
                return
            await wait_for_client_hello(loop, plain)
            async with self._handshakes.turn(source_of(peer)):
                seconds = self._limits.first_request_seconds
                await loop.connect_accepted_socket(inside, plain, ssl=tls, ssl_handshake_timeout=seconds)
        except OSError as error:
            # ssl.SSLError is one: a client that we do not trust, or that does not speak TLS
            self._rejected(_address(peer), describe_error(error))
            log.v(4).info("A connection ended before its first request", err=describe_error(error))

    def _ended(self, connection: _Connection, peer: Peer) -> None:
        if connection.plain is not None:
            connection.plain.close()
        if connection.transport is None:
            self._forget(peer, connection)

    def _forget(self, peer: Peer, connection: _Connection) -> None:
        if self._all.get(peer) is connection:
            del self._all[peer]
            for pool in (self._new, self._strangers):
                pool.discard(peer)
            self._busy.discard(peer)
            self._release(peer)

    def _release(self, peer: Peer) -> None:
        """The connection is no longer one of its holder's."""
        holder = self._holders.pop(peer, "")
        if holder:
            held = self._held[holder]
            del held[peer]
            if not held:
                del self._held[holder]

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(1.0, self._limits.first_request_seconds))
            for peer in self._new:
                if self._all[peer].deadline <= loop.time():
                    self._drop(peer, TOO_SLOW)


class _Inside(asyncio.Protocol):
    """The protocol inside TLS, the time that its connection has, and a word when that is lost."""

    def __init__(
        self, inner: asyncio.Protocol, connection: _Connection, limits: Limits, lost: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._connection = connection
        self._limits = limits
        self._lost = lost
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # before anybody hears of it: closed instead of aborted, it would wait 30 s for the client's farewell
        self._connection.transport = made = cast("asyncio.Transport", transport)
        self._has(self._limits.idle_seconds)
        made.set_write_buffer_limits(high=WRITE_BUFFER)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._has(self._limits.first_request_seconds)
        # from now on without a detour
        self.data_received = self._inner.data_received  # type: ignore[method-assign]
        self._inner.data_received(data)

    def _has(self, seconds: float) -> None:
        self._connection.deadline = asyncio.get_running_loop().time() + seconds

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)
        self._lost()


def _address(peer: Peer) -> str:
    """The client's address, without the interface of a link-local one."""
    return str(peer[0]).partition("%")[0] if peer else ""


def _tuned(plain: socket.socket) -> None:
    """Notices within 30 s that the other end is gone, and sends events at once."""
    plain.setblocking(False)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def _many_files() -> None:
    """Raise the limit of open files as far as this process may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
