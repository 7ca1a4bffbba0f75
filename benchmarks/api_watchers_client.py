"""Agents that watch: TLS connections of one process, some of which stop reading. Told what to do by `api_watchers`.

Words: port, file of the token, number of the first agent, number of agents, every how manieth watch is slow, and, if
rounds change only one of the resources, its plural. A line on stdout says that all watches have begun, then one for each round that all readers got; at the end of stdin the
latencies of all rounds in milliseconds, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import sys
import time
from asyncio.sslproto import SSLProtocol
from pathlib import Path

RESOURCES = ("networkpolicies", "appliedtogroups", "addressgroups", "egressgroups")
MARK = re.compile(rb"round-(\d+)-(\d+)-")
MAX_BATCH = 40


class Watch(asyncio.Protocol):
    """One watch of one agent."""

    def __init__(self, agents: Agents, resource: str, node: str, *, slow: bool) -> None:
        self._agents, self._resource, self._node, self._slow = agents, resource, node, slow
        self.began = asyncio.get_running_loop().create_future()
        self._tail = b""
        self._rounds: set[int] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        path = f"/apis/controlplane.antrea.io/v1beta2/{self._resource}?watch=true"
        request = f"GET {path}&fieldSelector=nodeName%3D{self._node} HTTP/1.1\r\nHost: antrea\r\n"
        transport.write(f"{request}Authorization: Bearer {self._agents.token}\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        text = self._tail + data
        self._tail = text[-200:]
        if not self.began.done() and b"BOOKMARK" in text:
            self.began.set_result(None)
            if self._slow:
                self._transport.pause_reading()
        for found in MARK.finditer(text):
            number = int(found[1])
            if number not in self._rounds:
                self._rounds.add(number)
                self._agents.got(number, (now - int(found[2])) / 1e6)


class Agents:
    """All watches of this process."""

    def __init__(self, port: int, token: str) -> None:
        self.token = token
        self._port = port
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._expected = 0
        self.latencies: dict[int, list[float]] = {}

    def got(self, number: int, milliseconds: float) -> None:
        latencies = self.latencies.setdefault(number, [])
        latencies.append(milliseconds)
        if len(latencies) == self._expected:
            print(number, flush=True)

    async def open(self, first: int, count: int, every: int, changed: str) -> None:
        gate = asyncio.Semaphore(MAX_BATCH)
        wanted = [(n, r) for n in range(first, first + count) for r in RESOURCES]
        slow = [(index % every) == every - 1 for index in range(len(wanted))]
        self._expected = sum(not s and changed in ("", r) for (_, r), s in zip(wanted, slow, strict=True))
        await asyncio.gather(
            *(self._watch(gate, r, f"node-{n}", slow=s) for (n, r), s in zip(wanted, slow, strict=True))
        )

    async def _watch(self, gate: asyncio.Semaphore, resource: str, node: str, *, slow: bool) -> None:
        async with gate:
            plain = socket.socket()
            if slow:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(plain, ("127.0.0.1", self._port))
            _, watch = await loop.create_connection(
                lambda: Watch(self, resource, node, slow=slow),
                sock=plain,
                ssl=self._tls,
                server_hostname="antrea",
            )
            await watch.began


async def main(port: str, token_file: str, first: str, count: str, every: str, changed: str = "") -> None:
    SSLProtocol.max_size = 16 << 10
    agents = Agents(int(port), await asyncio.to_thread(Path(token_file).read_text))
    await agents.open(int(first), int(count), int(every), changed)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(agents.latencies), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
