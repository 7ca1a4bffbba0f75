"""TCP and UDP between network namespaces from within one process, since every further one is slow in the machine."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from lab import namespace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PORT = 9001
TIMEOUT = 60.0
"""Seconds that one connection may take."""
INTERVAL = 0.02
"""Seconds between two datagrams, and two lines, of a stream."""
LINE = 8


def family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def carry(source: Path, target: Path, address: str, size: int) -> tuple[str, bool]:
    """Send `size` bytes by TCP; the peer's address that the server saw, and whether all came as they were sent."""
    data = os.urandom(size)
    with namespace.entered(target):
        listener = socket.create_server((address, PORT), family=family(address))
    listener.settimeout(TIMEOUT)
    with listener, ThreadPoolExecutor(1) as pool:
        received = pool.submit(_receive, listener)
        with namespace.connect(source, (address, PORT), seconds=TIMEOUT) as sender:
            sender.sendall(data)
        peer, got = received.result()
    return peer, got == data


def _receive(listener: socket.socket) -> tuple[str, bytes]:
    stream, peer = listener.accept()
    stream.settimeout(TIMEOUT)
    with stream, stream.makefile("rb") as whole:
        return str(peer[0]), whole.read()


class Arrived(msgspec.Struct, frozen=True):
    """How many numbers were sent, and how many of them came: in datagrams, and back on the TCP connection."""

    sent: int
    datagrams: int
    echoed: int


class Stream:
    """While its block lasts: numbered datagrams to `address`, and the same numbers there and back on one TCP connection."""

    def __init__(self, source: Path, target: Path, address: str, port: int) -> None:
        with namespace.entered(target):
            self._sink = socket.socket(family(address), socket.SOCK_DGRAM)
            self._sink.bind((address, port))
            listener = socket.create_server((address, port), family=family(address))
        with namespace.entered(source):
            self._udp = socket.socket(family(address), socket.SOCK_DGRAM)
        self._udp.connect((address, port))
        self._near = namespace.connect(source, (address, port), seconds=TIMEOUT)
        with listener:
            self._far = listener.accept()[0]
        self._seen: set[bytes] = set()
        self._sent = self._echoed = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"stream to {address}")

    def __enter__(self) -> Stream:
        for end in (self._sink, self._udp, self._near, self._far):
            end.setblocking(False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        for end in (self._sink, self._udp, self._near, self._far):
            end.close()

    @property
    def arrived(self) -> Arrived:
        """Complete once the block has ended."""
        return Arrived(self._sent, len(self._seen), self._echoed // LINE)

    def _run(self) -> None:
        while not self._end.wait(INTERVAL):
            line = b"%08d" % self._sent
            self._udp.send(line)
            self._near.sendall(line)
            self._sent += 1
            self._read()
        deadline = time.monotonic() + TIMEOUT / 4
        while self.arrived != Arrived(self._sent, self._sent, self._sent) and time.monotonic() < deadline:
            time.sleep(INTERVAL)
            self._read()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._seen.add(self._sink.recv(LINE))
        with contextlib.suppress(BlockingIOError):
            self._far.sendall(self._far.recv(4096))
        with contextlib.suppress(BlockingIOError):
            self._echoed += len(self._near.recv(4096))


def accept_each(listener: socket.socket, handle: Callable[[socket.socket], object]) -> None:
    """Handle streams one after the other, until the listener is shut down."""
    while True:
        try:
            stream, _ = listener.accept()
        except OSError:
            return
        with stream:
            stream.settimeout(TIMEOUT)
            handle(stream)
