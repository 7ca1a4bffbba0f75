"""A Pod that floods the agent with DNS answers of many addresses each, from a server that is trusted and from one that is not.

The third part of the benchmark `fqdn`: real packets through the same switch, and the lag of the agent's loop meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from figure import show

from antrea.features.network_policy.agent.fqdn import FqdnAddress
from benchmarks.engine import Lag, p99

if TYPE_CHECKING:
    from benchmarks.fqdn import Agent

ANSWERS, ADDRESSES, RATE = 3_200, 82, 500
"""82 addresses are what fits in one packet: 262,400 in all, at 500 answers a second."""
TARGET_LAG = 20
"""Milliseconds at p99."""
SETTLE_SECONDS = 120
SERVER = """
import socket, struct, sys
count, addresses = map(int, sys.argv[2:])
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
print("ready", flush=True)
while True:
    asked, client = server.recvfrom(512)
    end = asked.index(0, 12) + 5
    number = int(asked[14:13 + asked[12]])
    first = number * addresses
    records = b"".join(
        b"\\xc0\\x0c" + struct.pack("!HHIHI", 1, 1, 604800, 4, 0x0B000000 + first + n) for n in range(addresses)
    )
    head = asked[:2] + struct.pack("!HHHHH", 0x8180, 1, addresses, 0, 0)
    server.sendto(head + asked[12:end] + records, client)
"""
"""Gives the name `n7.w3.test` the addresses from the seventh block on, for a week."""
CLIENT = """
import socket, struct, sys, time
server, count, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
asks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asks.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
start = time.perf_counter()
for number in range(count):
    time.sleep(max(0, start + number / rate - time.perf_counter()))
    labels = (f"n{number}", f"w{number % 100}", "test")
    name = b"".join(bytes([len(part)]) + part.encode() for part in labels) + b"\\0"
    asks.sendto(struct.pack("!HHHHHH", number, 0x100, 1, 0, 0, 0) + name + b"\\0\\1\\0\\1", (server, 53))
"""
"""Asks, and waits for no answer."""


async def flood(agent: Agent, space: str, server: str, name: str) -> None:
    """One flood, until the agent has settled."""
    words = ("-c", SERVER, server, str(ANSWERS), str(ADDRESSES))
    serves = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    assert serves.stdout is not None
    await serves.stdout.readline()
    lag, begin, taken = Lag(), time.perf_counter(), agent.received
    sampling = asyncio.create_task(lag.run())
    try:
        words = ("-c", CLIENT, server, str(ANSWERS), str(RATE))
        command = ("nsenter", f"--net={space}", sys.executable, *words)
        client = await asyncio.create_subprocess_exec(*command)
        assert await client.wait() == 0
        async with asyncio.timeout(SETTLE_SECONDS):
            await agent.engine.quiet()
    finally:
        sampling.cancel()
        serves.kill()
        await serves.wait()
    rows = len(agent.facts.all(FqdnAddress))
    show(f"fqdn_flood_{name}_taken", f"of {ANSWERS} answers", [agent.received - taken])
    show(f"fqdn_flood_{name}_settled", "s", [time.perf_counter() - begin])
    show(f"fqdn_flood_{name}_rows", "addresses in rules", [rows])
    show(f"fqdn_flood_{name}_loop_lag_p99", "ms", [p99(lag.late)], target=TARGET_LAG)
    show(f"fqdn_flood_{name}_loop_lag_max", "ms", [max(lag.late)])
    show(f"fqdn_flood_{name}_loop_held_p99", "ms of processor", [p99(lag.held)])
