"""Programs at both ends of TCP connections that stay open: idle ones, downloads and uploads, and what became of each.

`CLIENT` gets the address of the server and the number of connections of each kind, says `connected`, and after a line of input
prints for each: its kind, whether it goes on, its longest pause in seconds, and the source that the server sees, or the error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

SERVER = """
import socket, threading, time
server = socket.create_server(("::", 8099), family=socket.AF_INET6, dualstack_ipv6=True, backlog=200)
print("listening", flush=True)
def serve(client):
    kind = client.recv(1)
    try:
        if kind == b"d":
            while True:
                client.sendall(b"x" * 100)
                time.sleep(0.02)
        while data := client.recv(4096):
            client.sendall(data)
    except OSError:
        pass
while True:
    client, peer = server.accept()
    client.sendall(f"{peer[0].removeprefix('::ffff:')} {peer[1]}\\n".encode())
    threading.Thread(target=serve, args=(client,), daemon=True).start()
"""
CLIENT = """
import json, socket, sys, threading, time
target, of_each, ended = sys.argv[1], int(sys.argv[2]), threading.Event()
results, connected = [], []
def read(stream, size):
    got = 0
    while got < size:
        data = stream.recv(size - got)
        if not data:
            raise OSError("closed")
        got += len(data)
def run(kind):
    alive, pause, last, seen = True, 0.0, 0.0, ""
    try:
        stream = socket.create_connection((target, 8099), timeout=30)
        seen = stream.makefile("rb", buffering=0).readline().decode().split()
        stream.sendall(kind[:1].encode())
        connected.append(kind)
        last = time.monotonic()
        while not ended.is_set():
            if kind == "idle":
                ended.wait()
                last = time.monotonic()
            if kind != "download":
                stream.sendall(b"y" * 100)
            read(stream, 100)
            now = time.monotonic()
            pause, last = max(pause, now - last), now
            time.sleep(0 if kind == "download" else 0.02)
    except OSError as error:
        alive, seen = False, str(error)
    results.append((kind, alive, pause, seen))
threads = [threading.Thread(target=run, args=(kind,)) for kind in ("idle", "download", "upload") for _ in range(of_each)]
for thread in threads:
    thread.start()
while len(connected) < len(threads) and any(thread.is_alive() for thread in threads):
    time.sleep(0.05)
print("connected", flush=True)
sys.stdin.readline()
ended.set()
for thread in threads:
    thread.join()
print(json.dumps(results), flush=True)
"""


@contextlib.asynccontextmanager
async def clients(
    spaces: Iterable[str], program: str, *words: str
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """A client in each of these network namespaces, connected."""
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for space in spaces:
            run = await asyncio.create_subprocess_exec(
                *("ip", "netns", "exec", space, sys.executable, "-c", program, *words), stdin=-1, stdout=-1
            )
            stack.push_async_callback(_end, run)
            found.append(run)
        for run in found:
            assert run.stdout
            assert await run.stdout.readline() == b"connected\n"
        yield found


async def _end(run: asyncio.subprocess.Process) -> None:
    if run.returncode is None:
        run.kill()
        await run.wait()


async def results(run: asyncio.subprocess.Process) -> list[Any]:
    """What a client prints at its end, for each connection."""
    out, _ = await run.communicate(b"\n")
    found: list[Any] = json.loads(out)
    return found
