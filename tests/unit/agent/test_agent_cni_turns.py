"""Calls of one container come one after the other."""

from __future__ import annotations

import asyncio

import pytest

from antrea.agent.cni.request import Failed
from antrea.agent.cni.server import ContainerLocks
from antrea.apis.cni import Code


async def test_calls_of_one_container_wait_for_each_other_and_others_do_not() -> None:
    locks, order = ContainerLocks(10), list[str]()
    first_may_end = asyncio.Event()

    async def call(container: str, name: str, until: asyncio.Event | None = None) -> None:
        async with locks.hold(container):
            order.append(name)
            if until:
                await until.wait()
            order.append(f"{name} ended")

    tasks = [asyncio.create_task(call("c1", "a", first_may_end))]
    tasks += [asyncio.create_task(call("c1", name)) for name in ("b", "c")]
    other = asyncio.create_task(call("c2", "d"))
    await other
    assert (order, locks.busy) == (["a", "d", "d ended"], frozenset({"c1"}))
    first_may_end.set()
    await asyncio.gather(*tasks)
    assert order[3:] == ["a ended", "b", "b ended", "c", "c ended"]
    assert locks.busy == frozenset()


async def test_who_waits_too_long_is_told_to_try_again_and_is_forgotten() -> None:
    locks = ContainerLocks(0.01)
    async with locks.hold("c1"):
        with pytest.raises(Failed) as failed:
            async with locks.hold("c1"):
                pass
        assert failed.value.error.code == Code.TRY_AGAIN_LATER
        assert locks.busy == {"c1"}
    assert locks.busy == frozenset()
    async with locks.hold("c1"):
        pass


async def test_a_call_that_fails_lets_the_next_one_in() -> None:
    locks = ContainerLocks(10)
    with pytest.raises(ZeroDivisionError):
        async with locks.hold("c1"):
            raise ZeroDivisionError
    async with locks.hold("c1"):
        pass
