"""TCP connections that each carry a byte there and a byte back, one after the other: the TCP_CRR of netperf.

Started as a program it is one end, in whichever network namespace: `serve ADDRESS PORT` or `run ADDRESS PORT SECONDS`.
"""

from __future__ import annotations

import socket
import sys
import time


def serve(address: str, port: int) -> None:
    """For ever."""
    with socket.create_server((address, port), backlog=128) as server:
        print("listening", flush=True)
        while True:
            client, _ = server.accept()
            with client:
                client.settimeout(5)
                try:
                    client.sendall(client.recv(1))
                except OSError:
                    continue


def transactions(address: str, port: int, seconds: float) -> float:
    """How many a second."""
    done, began = 0, time.monotonic()
    while (past := time.monotonic() - began) < seconds:
        with socket.create_connection((address, port), timeout=10) as client:
            client.sendall(b".")
            client.recv(1)
        done += 1
    return done / past


def main() -> None:
    what, address, port, *rest = sys.argv[1:]
    if what == "serve":
        serve(address, int(port))
    print(transactions(address, int(port), float(rest[0])))


if __name__ == "__main__":
    main()
