"""What the agent of a machine takes, in figures: `python -m benchmarks.external_node` prints them (docs/benchmarks.md)."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from figure import show
from machine_process import ADDRESSES, NODE, NODES, POLICIES, external_node, listening, machine, policy

if TYPE_CHECKING:
    from conftest import Namespaces
    from machine_process import Machine

pytestmark = [pytest.mark.wide, pytest.mark.timeout(600)]
ROUNDS, RULES, PORT = 5, 100, 8080
MIB = 1 << 20
ASK = """
import socket, sys, time
print("asking", flush=True)
while True:
    begin = time.monotonic()
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.5).close()
    except OSError:
        print(begin, flush=True)
        break
    time.sleep(0.002)
"""
"""Prints when it began to open the first connection that was not made."""


async def test_memory_and_the_time_until_a_policy_is_enforced(netns: Namespaces, tmp_path: Path) -> None:
    async with machine(netns, tmp_path) as one:
        one.api.put(f"{NODES}/{NODE}", external_node("eth0"))
        await one.connected()
        enforced: list[float] = []
        stated: list[float] = []
        with netns.serving(netns.home, listening(PORT + RULES - 1)):
            for number in range(ROUNDS):
                before, after = await _times(one, number)
                enforced.append(before)
                stated.append(after)
                memory = _resident(one)
                one.api.drop(f"{POLICIES}/p{number}")
                await one.until(
                    lambda: one.opens(ADDRESSES[0], PORT + RULES - 1, from_peer=True), "it is gone"
                )
        show(f"machine_policy_of_{RULES}_rules_until_enforced", "s", enforced, target=1)
        show(f"machine_policy_of_{RULES}_rules_until_realized", "s", stated)
        show(f"machine_agent_memory_with_{RULES}_rules", "MiB", [memory / MIB], target=60)
        assert max(enforced) < 30, "far above what a busy machine explains"


async def _times(one: Machine, number: int) -> tuple[float, float]:
    """Seconds from the policy until packets are dropped by its last rule, and until its status says so."""
    words = ["ip", "netns", "exec", one.peer, sys.executable, "-c", ASK, ADDRESSES[0], str(PORT + RULES - 1)]
    asking = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    assert asking.stdout is not None
    await asking.stdout.readline()
    rules = [
        {"action": "Drop", "name": f"r{port}", "ports": [{"protocol": "TCP", "port": PORT + port}]}
        for port in range(RULES)
    ]
    begin = time.monotonic()
    one.api.put(f"{POLICIES}/p{number}", policy(ingress=rules))
    async with asyncio.timeout(60):
        while one.status(f"p{number}") != ("Realized", 1, 1):  # noqa: ASYNC110 (of another process)
            await asyncio.sleep(0.002)
        realized = time.monotonic()
        dropped = float(await asking.stdout.readline())
        await asking.wait()
    return max(dropped - begin, 0.0), realized - begin


def _resident(one: Machine) -> int:
    """Octets of memory that the agent has."""
    assert one.agent.process is not None
    lines = Path(f"/proc/{one.agent.process.pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
