"""Numbered UDP datagrams and one TCP stream between two network namespaces, and what of them arrived."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import time

INTERVAL = 0.01
"""Seconds between two datagrams, and two lines of the stream."""
UDP_PORT, TCP_PORT = 9001, 9002
LINE = 8


def serve(address: str) -> None:
    """Count datagrams until one says how many there were; send every line of the stream back."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    udp = socket.socket(family, socket.SOCK_DGRAM)
    udp.bind((address, UDP_PORT))
    listener = socket.create_server((address, TCP_PORT), family=family)
    print("listening", flush=True)
    stream, _ = listener.accept()
    stream.settimeout(0)
    udp.settimeout(0.005)
    seen: set[bytes] = set()
    while True:
        try:
            data = udp.recv(LINE)
            if data == b"end":
                break
            seen.add(data)
        except TimeoutError:
            pass
        with contextlib.suppress(BlockingIOError):
            stream.sendall(stream.recv(4096))
    print(json.dumps({"datagrams": len(seen)}), flush=True)


def send(address: str) -> None:
    """Send until standard input ends; then say what was sent and how much of the stream came back."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    udp = socket.socket(family, socket.SOCK_DGRAM)
    stream = socket.create_connection((address, TCP_PORT), timeout=10)
    print("connected", flush=True)
    number = echoed = 0
    due = time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        line = b"%08d" % number
        udp.sendto(line, (address, UDP_PORT))
        stream.sendall(line)
        number += 1
        due += INTERVAL
        time.sleep(max(0.0, due - time.monotonic()))
    while echoed < number * LINE:
        echoed += len(stream.recv(4096))
    time.sleep(0.2)
    udp.sendto(b"end", (address, UDP_PORT))
    print(json.dumps({"sent": number, "echoed": echoed // LINE}), flush=True)


if __name__ == "__main__":
    {"serve": serve, "send": send}[sys.argv[1]](sys.argv[2])
