"""Connections that stay open while Services go from one proxy to another, inside the virtual machine: of TCP, and associations of SCTP."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from kernel_sctp import associating, bound
from kernel_services import SECONDS, Way, serving
from kernel_traffic import TIMEOUT, family

from lab import namespace
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernel_lab import KernelLab

GREETING = b"hello"


class Line(NamedTuple):
    """Where something is to stay open."""

    way: Way
    sctp: bool = False


class Talk:
    """A connection that stays open, once it was greeted. Raises OSError."""

    def __init__(self, line: Line, seconds: float) -> None:
        self.line, way = line, line.way
        self._stream = _unconnected(line)
        try:
            self._stream.settimeout(seconds)
            self._stream.connect((way.address, way.port))
            if self._stream.recv(64) != GREETING:
                raise ConnectionError(f"no greeting by {line}")
        except OSError:
            self._stream.close()
            raise
        self._stream.settimeout(TIMEOUT)

    def goes_on(self, word: bytes) -> bool:
        try:
            self._stream.sendall(word)
            return self._stream.recv(64) == word
        except OSError:
            return False

    def close(self) -> None:
        self._stream.close()


def _unconnected(line: Line) -> socket.socket:
    """An association begins at one address alone: it would tell the other end all that it may come from."""
    way = line.way
    with namespace.entered(way.netns):
        if not line.sctp:
            return socket.socket(family(way.address), socket.SOCK_STREAM)
        with socket.socket(family(way.address), socket.SOCK_DGRAM) as probe:
            probe.connect((way.address, way.port))  # sends nothing
            source = probe.getsockname()[0]
    return bound(way.netns, source)


@contextmanager
def talks(lines: Sequence[Line]) -> Iterator[list[Talk]]:
    made: list[Talk] = []
    try:
        made += (Talk(line, TIMEOUT) for line in lines)
        yield made
    finally:
        for one in made:
            one.close()


def broken(open_ones: Sequence[Talk], word: bytes) -> list[Line]:
    """Asked all at once: one that has broken may take long to say so."""
    with ThreadPoolExecutor(len(open_ones)) as pool:
        going_on = pool.map(lambda one: one.goes_on(word), open_ones)
        return [one.line for one, goes_on in zip(open_ones, going_on, strict=True) if not goes_on]


def until_greeted(lines: Sequence[Line]) -> None:
    """By a connection of its own each time: one that begins before all rules of a proxy stand goes on without them."""

    def greeted(line: Line) -> bool:
        with suppress(OSError):
            Talk(line, SECONDS).close()
            return True
        return False

    for line in lines:
        wait_for(f"a greeting by {line}", lambda line=line: greeted(line), seconds=2 * TIMEOUT)  # type: ignore[misc]


@contextmanager
def conversing(kernel: KernelLab, pod: str, port: int, sctp_port: int) -> Iterator[None]:
    """The Pod greets whoever connects to it, and sends back whatever comes."""
    with ExitStack() as stack:
        stack.enter_context(serving(kernel.netns(pod), {port: _converse}))
        for address in kernel.addresses(pod).values():
            stack.enter_context(associating(kernel.netns(pod), address, sctp_port, _converse))
        yield


def _converse(stream: socket.socket) -> None:
    """Beside other connections."""
    own = stream.dup()
    own.settimeout(None)
    own.sendall(GREETING)
    threading.Thread(target=_echo, args=(own,), daemon=True).start()


def _echo(stream: socket.socket) -> None:
    with closing(stream), suppress(OSError):  # of one that was reset
        while data := stream.recv(64):
            stream.sendall(data)
