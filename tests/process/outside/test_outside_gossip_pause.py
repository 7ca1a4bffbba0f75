"""An agent that did not run for long drops its addresses before it does anything else."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from free_port import free_port
from lone_agent import NODES

from antrea.engine import Facts
from antrea.facts.member import AgentNode, GossipMember
from antrea.outside.gossip.feed import GossipFeed


@pytest.mark.parametrize("switch", [False, True], ids=["no switch", "switch up"])
async def test_an_agent_that_was_paused_until_others_took_it_for_dead_drops_its_address_at_once(
    *, switch: bool
) -> None:
    """`switch`: BFD of the others finds its switch up all the time; its kernel accepts their connections."""
    port = free_port()
    key = os.urandom(32)
    others, facts = [], Facts()
    for node in NODES[1:]:
        own = facts if node is NODES[1] else Facts()
        for row in NODES:
            own.put(row)
        own.synced(AgentNode)
        feed = GossipFeed(node.name, node.ips[0], port)
        feed.keys([key])
        if switch:
            feed.report_bfd("node-1", True)
        others.append(asyncio.create_task(feed.run(own)))
    argv = [sys.executable, str(Path(__file__).with_name("lone_agent.py"))]
    words = (NODES[0].name, NODES[0].ips[0], str(port), key.hex())
    agent = await asyncio.create_subprocess_exec(*argv, *words, stdout=asyncio.subprocess.PIPE)
    assert agent.stdout
    try:
        async with asyncio.timeout(60):
            assert [await agent.stdout.readline() for _ in range(2)] == [b"begins\n", b"put\n"]
            agent.send_signal(signal.SIGSTOP)
            while (known := facts.get(GossipMember, "node-1")) is None or known.alive:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert known.why.startswith("its switch is up") == switch or known.why.startswith("says")
            runs = time.monotonic()
            agent.send_signal(signal.SIGCONT)
            assert await agent.stdout.readline() == b"drop\n"
        # test_outside_gossip.py has the bound, in virtual time
        print(f"{1000 * (time.monotonic() - runs):.0f} ms from the end of the pause")
    finally:
        agent.kill()
        await agent.wait()
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
