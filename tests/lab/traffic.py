"""Numbered UDP datagrams and one TCP stream between two network namespaces, and what of them arrived.

Started as a program it is one end; imported it is what a test needs to run both: no wait without a deadline, no end
of a test with a process of it left.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INTERVAL = 0.01
"""Seconds between two datagrams, and two lines of the stream."""
UDP_PORT, TCP_PORT = 9001, 9002
LINE = 8
TIMEOUT = 60.0
"""Seconds within which one end has to hear of the other."""
ROOM = 8 << 20
"""Bytes that wait for an end which does not run for a while, as on a busy machine."""
SO_RCVBUFFORCE = 33
"""Linux's, which Python does not name."""


def serve(address: str) -> None:
    """Count datagrams until one says how many there were; send every line of the stream back."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    udp = socket.socket(family, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM)
    udp.bind((address, UDP_PORT))
    listener = socket.create_server((address, TCP_PORT), family=family)
    listener.settimeout(TIMEOUT)
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
    stream = socket.create_connection((address, TCP_PORT), timeout=TIMEOUT)
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
        if not (data := stream.recv(4096)):
            raise EOFError(f"the stream ended after {echoed} of {number * LINE} bytes")
        echoed += len(data)
    time.sleep(0.2)
    udp.sendto(b"end", (address, UDP_PORT))
    print(json.dumps({"sent": number, "echoed": echoed // LINE}), flush=True)


@contextlib.contextmanager
def running(name: str, argv: Sequence[str]) -> Iterator[End]:
    """The program, ended when the block ends, however it ends."""
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield End(name, process)
        finally:
            process.kill()


class End:
    """One end that runs, and what it says; every wait has a deadline and names what was waited for."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name, self.process = name, process

    def says(self, line: str, seconds: float = TIMEOUT) -> None:
        """Its next line is this one, and comes in time."""
        said = self.line(seconds)
        assert said == line, f"{self.name}: {line!r} awaited, it said {said!r}"

    def line(self, seconds: float = TIMEOUT) -> str:
        """Its next line. A program writes one line at a time, so none is left in the buffer that select cannot see."""
        out = self.process.stdout
        assert out is not None
        if not select.select([out], [], [], seconds)[0]:
            raise AssertionError(f"{self.name}: said nothing within {seconds:.0f} s")
        return out.readline().removesuffix("\n") or self._fail("ended without a word")

    def result(self, word: str = "", seconds: float = 2 * TIMEOUT) -> Any:
        """What it says at its end, decoded; `word` is what it is told before."""
        try:
            out, err = self.process.communicate(word, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name}: did not end within {seconds:.0f} s") from None
        assert self.process.returncode == 0, f"{self.name}: {err}"
        return json.loads(out)

    def _fail(self, why: str) -> Any:
        self.process.kill()
        raise AssertionError(f"{self.name}: {why}: {self.process.communicate()[1]}")


if __name__ == "__main__":
    {"serve": serve, "send": send}[sys.argv[1]](sys.argv[2])
