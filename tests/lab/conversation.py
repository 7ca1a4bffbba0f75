"""One connection through a Service that a test holds open while Services move."""

from __future__ import annotations

import subprocess
import sys

TALK = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as stream:
    for line in sys.stdin:
        stream.sendall(b"GET /hostname HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        answer = b""
        while b"\\r\\n\\r\\n" not in answer or not answer.partition(b"\\r\\n\\r\\n")[2]:
            answer += stream.recv(4096) or sys.exit("closed")
        print(answer.decode().split()[-1], flush=True)
"""


class Conversation:
    """One connection to an HTTP server, over which the server is asked for its name again and again."""

    def __init__(self, inside: list[str], ip: str, port: int = 80) -> None:
        self._inside, self._place = inside, (ip, str(port))

    def __enter__(self) -> Conversation:
        self._process = subprocess.Popen(
            [*self._inside, sys.executable, "-c", TALK, *self._place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self) -> str:
        """The server's name, over the same connection as before. An AssertionError if there is no answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer, "the connection has ended"
        return answer
