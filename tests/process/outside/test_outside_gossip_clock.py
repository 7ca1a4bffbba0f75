"""Clocks of two of three agents jump by an hour, forth and back: the Egress IP stays where it is, and nobody dies of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from free_port import free_port
from lone_agent import NODES

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
HOUR = 3600
FOUND_SECONDS = 4.25
"""Within which three members know of one that is dead (docs/membership.md)."""
ROUNDS = 4
"""A machine that lets an agent wait for a processor for a second has it taken for dead: what the clock does, it does each time."""
SETTLED_SECONDS = 20.0
State = tuple[int, int, list[str]]
"""Members that came, members that died, and what was done with the address."""


class Agent:
    """A process with a clock of its own on the wall; its others are everybody's."""

    def __init__(self, name: str, clock: Path) -> None:
        self.name, self._clock = name, clock
        self.said: list[str] = []
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """From now on the clock is so far ahead of the right time."""
        self._ahead = seconds
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self._clock)

    async def start(self, ip: str, port: int, key: str) -> None:
        environ = os.environ | {
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "LD_PRELOAD": str(LIBRARY),
        }
        program = str(Path(__file__).with_name("lone_agent.py"))
        words = (sys.executable, program, self.name, ip, str(port), key)
        self.process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, env=environ
        )
        assert await self._line() == "begins"

    async def _line(self) -> str:
        assert self.process.stdout
        return (await self.process.stdout.readline()).decode().strip()

    async def state(self) -> State:
        """As it says itself; its clock shows what it was given."""
        self.process.send_signal(signal.SIGUSR1)
        while not (line := await self._line())[:1].isdigit():
            self.said.append(line)
        clock, joins, deaths = map(int, line.split())
        assert clock - time.time() == pytest.approx(self._ahead, abs=60)
        return joins, deaths, [*self.said]


async def settled(agents: list[Agent]) -> list[State]:
    """Everybody's state as soon as all live and the first one has the address."""
    while True:
        found = [await agent.state() for agent in agents]
        if found == [(2, 0, ["put"]), (2, 0, []), (2, 0, [])]:
            return found
        await asyncio.sleep(0.1)


async def are_calm(agents: list[Agent]) -> bool:
    """Whether nothing changes for anybody while clocks jump."""
    port, key = free_port(), os.urandom(32).hex()
    async with contextlib.AsyncExitStack() as stack:
        for agent, node in zip(agents, NODES, strict=True):
            await agent.start(node.ips[0], port, key)
            stack.push_async_callback(agent.process.wait)
            stack.callback(agent.process.kill)
        try:
            async with asyncio.timeout(SETTLED_SECONDS):
                before = await settled(agents)
        except TimeoutError:
            return False
        for jumps in ((HOUR, -HOUR, 0), (-HOUR, HOUR, 0)):
            for agent, seconds in zip(agents, jumps, strict=True):
                agent.jump(seconds)
            await asyncio.sleep(FOUND_SECONDS)
            if [await agent.state() for agent in agents] != before:
                return False
        return True


@pytest.mark.wide  # with other tests beside it, an agent waits for a processor for a second in every round
@pytest.mark.skipif(not LIBRARY.exists(), reason="libfaketime is not installed")
async def test_clocks_that_jump_by_an_hour_move_no_egress_ip_and_kill_no_member(tmp_path: Path) -> None:
    for left in reversed(range(ROUNDS)):
        if await are_calm([Agent(node.name, tmp_path / node.name) for node in NODES]):
            break
        assert left
