"""New connections, 100 a second, each one datagram from a port of its own that the other end answers with whose it is.

Started as a program it is one end; imported it runs both.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import traffic

from lab import namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.cluster import Lab

INTERVAL = 0.01
PORT = 9003
LATE = 30.0
"""Seconds after which an answer is lost: on a busy machine neither end runs for a while."""


def serve(address: str, port: int) -> None:
    """Tell every sender its address, as seen here."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, traffic.SO_RCVBUFFORCE, traffic.ROOM)
    server.bind((address, port))
    print("listening", flush=True)
    while True:
        data, peer = server.recvfrom(64)
        server.sendto(data + peer[0].encode(), peer)


def send(address: str, port: int) -> None:
    """Until standard input ends; then say how many went, and which of them got no answer, or which as whom."""
    sent: list[socket.socket] = []
    due = time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setblocking(False)
        one.connect((address, port))
        one.send(b".")
        sent.append(one)
        due += INTERVAL
        time.sleep(max(0.0, due - time.monotonic()))
    seen: dict[str, list[float]] = {}
    waiting = dict(enumerate(sent))
    last = time.monotonic() + LATE
    while waiting and time.monotonic() < last:
        for number, one in list(waiting.items()):
            with contextlib.suppress(BlockingIOError):
                seen.setdefault(_answer(one), []).append(round(number * INTERVAL, 2))
                del waiting[number]
        time.sleep(0.1)
    lost = [round(number * INTERVAL, 2) for number in waiting] + seen.pop("", [])
    common = max(seen, key=lambda who: len(seen[who]), default="")
    others = {who: at for who, at in seen.items() if who != common}
    print(json.dumps({"sent": len(sent), "lost": lost, "seen": common, "others": others}))


def _answer(one: socket.socket) -> str:
    """As whom the other end saw it; empty: it was refused. Raises BlockingIOError."""
    try:
        return one.recv(64)[1:].decode()
    except ConnectionError:
        return ""


@contextmanager
def connecting(lab: Lab, inside: list[str], target: str, port: int) -> Iterator[Callable[[], Any]]:
    """From the namespace that `inside` leads to, to the host outside; what it yields ends it and says how it went."""
    argv = [sys.executable, __file__]
    outside = namespace.inside(namespace.path(lab.record, "outside"), [*argv, "serve", target, str(port)])
    with traffic.running("outside", outside) as server:
        server.says("listening")
        with traffic.running("newcomers", [*inside, *argv, "send", target, str(port)]) as sender:
            yield partial(sender.result, seconds=LATE + traffic.TIMEOUT)


if __name__ == "__main__":
    {"serve": serve, "send": send}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
