"""Handshakes start a few at a time, in turn by source, and each place is freed once."""

from __future__ import annotations

import asyncio
from random import Random

from antrea.outside.listener.handshake_queue import HandshakeQueue

FLOOD, OTHER = "192.0.2.9", "10.0.0.1"


async def turns() -> None:
    """Let all tasks run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_source_with_many_handshakes_delays_another_source_by_one() -> None:
    queue, started = HandshakeQueue(1, client_seconds=60), list[str]()

    async def shake(address: str) -> None:
        async with queue.turn(address):
            started.append(address)
            await turns()

    async with asyncio.timeout(10):
        await asyncio.gather(*(shake(FLOOD) for _ in range(50)), shake(OTHER))
    assert started.index(OTHER) == 2
    assert started.count(FLOOD) == 50


async def test_a_handshake_that_waits_for_its_client_keeps_no_place() -> None:
    queue, silent = HandshakeQueue(1, client_seconds=0.05), asyncio.Event()

    async def shake() -> None:
        async with queue.turn(FLOOD):
            await silent.wait()

    waiting = asyncio.ensure_future(shake())
    async with asyncio.timeout(10), queue.turn(OTHER):
        assert not waiting.done()
    silent.set()
    await waiting
    assert queue._places == 1


async def test_each_place_comes_back_once_however_handshakes_end() -> None:
    random, queue = Random(37), HandshakeQueue(3, client_seconds=0.001)

    async def shake(number: int) -> None:
        async with queue.turn(f"10.0.0.{number % 7}"):
            await asyncio.sleep(random.random() / 500)

    async with asyncio.timeout(30):
        for _ in range(40):
            tasks = [asyncio.ensure_future(shake(number)) for number in range(30)]
            for _ in range(random.randrange(8)):
                await asyncio.sleep(0)
            for task in random.sample(tasks, 15):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        while queue._places != 3:  # noqa: ASYNC110 (timers of the queue free them)
            await asyncio.sleep(0.001)
    assert (queue._places, queue._waiting) == (3, {})
