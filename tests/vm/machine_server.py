"""Runs in the virtual machine that is a machine outside the cluster: listens at two ports, and does what it is told at a third."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

TOLD, PORTS = 22, (8080, 8081)
"""A shell command, to which the answer is its output; `end` ends the machine."""


def listening(port: int) -> socket.socket:
    return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)


def accepting(listener: socket.socket) -> None:
    while True:
        listener.accept()[0].close()


def main() -> None:
    for port in PORTS:
        threading.Thread(target=accepting, args=(listening(port),), daemon=True).start()
    told = listening(TOLD)
    while True:
        peer, _ = told.accept()
        with peer, peer.makefile("rw") as lines:
            command = lines.readline().strip()
            if command == "end":
                return
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
            lines.write(done.stdout + done.stderr)
            lines.flush()


if __name__ == "__main__":
    main()
    sys.exit(0)
