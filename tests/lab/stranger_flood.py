"""Connections to ports of a lab that are half open, silent or half sent, made again when they are dropped, until standard input ends; run in a network namespace.

The arguments are JSON: pairs of an address and a port, and an unused address of the namespace's network.
"""

from __future__ import annotations

import collections
import errno
import json
import resource
import select
import socket
import struct
import sys
import time

EACH = 1200
"""Connections of a port that are silent, and as many that send a part of a request: more than the listener keeps."""
HALF_OPEN = 300
TURN_SECONDS = 0.1
RECONNECTS_OF_A_TURN = 100
"""At all ports; without a bound this one process takes all of the machine."""
READING = select.EPOLLIN | select.EPOLLRDHUP
PARTS = (
    b"\x16\x03\x01\x02\x00\x01",
    b"GET /healthz HTTP/1.1\r\nHost:",
    b"\x00\x0a\xff\xff",
    b"\x00\x0f\xff\xff\x13",
)
"""A ClientHello, headers, a message of IPFIX, a packet of gossip: none is complete."""


class Stranger:
    """A connection that is silent, or sends `part` and no more, to a target that may drop it."""

    def __init__(self, target: tuple[str, int], part: bytes) -> None:
        self.target, self.part = target, part
        self.socket = socket.socket()
        self.socket.setblocking(False)
        error = self.socket.connect_ex(target)
        assert error in (0, errno.EINPROGRESS), errno.errorcode[error]

    def is_open(self, events: int) -> bool:
        """Whether the connection is open after these events; sends the part once it is made."""
        try:
            if events & select.EPOLLOUT and self.part:
                self.socket.send(self.part)
            if events & select.EPOLLIN:
                return bool(self.socket.recv(4096))
        except BlockingIOError:
            return True
        except OSError:
            return False
        return not events & (select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP)


class Flood:
    """Strangers at all targets; each that is dropped comes back."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._strangers: dict[int, Stranger] = {}
        self._dropped: collections.deque[Stranger] = collections.deque()
        self.reconnects = 0

    def add(self, target: tuple[str, int], part: bytes) -> None:
        stranger = Stranger(target, part)
        self._strangers[stranger.socket.fileno()] = stranger
        self._epoll.register(stranger.socket, READING | select.EPOLLOUT)

    def poll(self, seconds: float) -> None:
        """Handle the events of this time."""
        for descriptor, events in self._epoll.poll(seconds):
            stranger = self._strangers[descriptor]
            if stranger.is_open(events):
                self._epoll.modify(descriptor, READING)
                continue
            del self._strangers[descriptor]
            stranger.socket.close()
            self._dropped.append(stranger)

    def reconnect(self, most: int) -> None:
        """Make so many of the dropped connections again."""
        for _ in range(min(most, len(self._dropped))):
            stranger = self._dropped.popleft()
            self.add(stranger.target, stranger.part)
            self.reconnects += 1


def main() -> None:
    targets, unused = json.loads(sys.argv[1]), sys.argv[2]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    flood = Flood()
    for host, port in targets:
        half_open(unused, host, port)
    for host, port in targets:
        for number in range(2 * EACH):
            flood.add((host, port), PARTS[number // 2 % len(PARTS)] if number % 2 else b"")
        flood.poll(0)
    print(json.dumps({"connections": 2 * EACH * len(targets)}), flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        due = time.monotonic() + TURN_SECONDS
        flood.reconnect(RECONNECTS_OF_A_TURN)
        while (left := due - time.monotonic()) > 0:
            flood.poll(left)
    print(json.dumps({"reconnects": flood.reconnects}), flush=True)


def half_open(source: str, host: str, port: int) -> None:
    """Segments that begin connections of an address which never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for number in range(HALF_OPEN):
            ends = socket.inet_aton(source) + socket.inet_aton(host)
            tcp = struct.pack("!HHIIBBHHH", 20000 + number, port, number, 0, 5 << 4, 2, 64240, 0, 0)
            summed = checksum(ends + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(tcp)) + tcp)
            ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, socket.IPPROTO_TCP, 0) + ends
            raw.sendto(ip + tcp[:16] + struct.pack("!H", summed) + tcp[18:], (host, 0))


def checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


if __name__ == "__main__":
    main()
