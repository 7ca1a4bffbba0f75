"""A client of a Service outside of the cluster: 100 new connections a second, and some that stay, each with a request every 0.1 s.

Run as a program: `python3 service_client.py ADDRESS PORT`. At the end of its standard input it prints what came of them, as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from itertools import pairwise

INTERVAL = 0.01
STAYING, PAUSE = 20, 0.1
SLOW = 0.9
"""Seconds: whoever waits longer for a connection lost a packet, which TCP repeats after a second."""
TIMEOUT = 10.0
REQUEST = b"GET /hostname HTTP/1.1\r\nHost: x\r\n\r\n"


class Client:
    """Threads that ask, and what they saw."""

    def __init__(self, address: str, port: int) -> None:
        self._to = (address, port)
        self._end = threading.Event()
        self._begun = time.monotonic()
        self.answered: list[tuple[float, float]] = []
        """When each new connection began, and had its answer."""
        self.lost: list[tuple[float, str]] = []
        """When each began that failed, and why."""
        self.broken: list[tuple[float, str]] = []
        """When each of those that stay ended, and why."""
        self.longest = 0.0
        """Seconds that one of them waited for an answer."""

    def run(self) -> None:
        threads = [threading.Thread(target=self._stay) for _ in range(STAYING)]
        for one in threads:
            one.start()
        print("asking", flush=True)
        threading.Thread(target=self._wait_for_end, daemon=True).start()
        due = time.monotonic()
        while not self._end.is_set():
            threads.append(threading.Thread(target=self._ask))
            threads[-1].start()
            due += INTERVAL
            time.sleep(max(0.0, due - time.monotonic()))
        for one in threads:
            one.join()

    def _wait_for_end(self) -> None:
        sys.stdin.readline()
        self._end.set()

    def _ask(self) -> None:
        began = time.monotonic()
        try:
            with socket.create_connection(self._to, timeout=TIMEOUT) as stream:
                stream.sendall(REQUEST)
                if not stream.recv(512):
                    raise ConnectionError("closed")
            self.answered.append((began, time.monotonic()))
        except OSError as error:
            self.lost.append((began, str(error)))

    def _stay(self) -> None:
        try:
            with socket.create_connection(self._to, timeout=TIMEOUT) as stream:
                while not self._end.is_set():
                    began = time.monotonic()
                    stream.sendall(REQUEST)
                    if not stream.recv(512):
                        raise ConnectionError("closed")
                    self.longest = max(self.longest, time.monotonic() - began)
                    time.sleep(PAUSE)
        except OSError as error:
            self.broken.append((time.monotonic(), str(error)))

    def found(self) -> dict[str, object]:
        """Times are seconds after the start."""
        done = sorted(end for _, end in self.answered)
        return {
            "sent": len(self.answered) + len(self.lost),
            "gap": max((after - before for before, after in pairwise(done)), default=0.0),
            "slow": sum(end - began > SLOW for began, end in self.answered),
            "lost": [(round(at - self._begun, 2), why) for at, why in sorted(self.lost)],
            "staying": STAYING,
            "broken": [(round(at - self._begun, 2), why) for at, why in sorted(self.broken)],
            "longest": self.longest,
        }


if __name__ == "__main__":
    client = Client(sys.argv[1], int(sys.argv[2]))
    client.run()
    print(json.dumps(client.found()), flush=True)
