"""The external host `outside` as a server: whose address it sees."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import traffic

from lab import namespace

if TYPE_CHECKING:
    from lab.cluster import Lab

PORT = 8099
SERVER = """
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
server = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
server.settimeout(60)
print("listening", flush=True)
client, peer = server.accept()
client.close()
print(peer[0], flush=True)
"""


def address(lab: Lab, version: int) -> str:
    return lab.topology.machine("outside").address("eth0", version)


def source_of(lab: Lab, pod: str, version: int, seconds: int = 5) -> str:
    """The address that `outside` sees when this Pod connects to it by TCP; Unavailable if it does not within `seconds`."""
    there = address(lab, version)
    argv = [sys.executable, "-c", SERVER, there, str(PORT)]
    with traffic.running("outside", namespace.inside(namespace.path(lab.record, "outside"), argv)) as server:
        server.says("listening")
        lab.api.kubectl("exec", pod, "--", "nc", "-z", "-w", str(seconds), there, str(PORT))
        return server.line()
