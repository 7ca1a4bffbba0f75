"""Calls of one container come one after the other."""

from __future__ import annotations

import asyncio

import pytest

from antrea.agent.cni_call import Failed
from antrea.agent.cni_turns import Turns
from antrea.apis.cni import Code


async def test_calls_of_one_container_wait_for_each_other_and_others_do_not() -> None:
    turns, order = Turns(10), list[str]()
    first_may_end = asyncio.Event()

    async def call(container: str, name: str, until: asyncio.Event | None = None) -> None:
        async with turns.of(container):
            order.append(name)
            if until:
                await until.wait()
            order.append(f"{name} ended")

    tasks = [asyncio.create_task(call("c1", "a", first_may_end))]
    tasks += [asyncio.create_task(call("c1", name)) for name in ("b", "c")]
    other = asyncio.create_task(call("c2", "d"))
    await other
    assert (order, turns.busy) == (["a", "d", "d ended"], frozenset({"c1"}))
    first_may_end.set()
    await asyncio.gather(*tasks)
    assert order[3:] == ["a ended", "b", "b ended", "c", "c ended"]
    assert turns.busy == frozenset()


async def test_who_waits_too_long_is_told_to_try_again_and_is_forgotten() -> None:
    turns = Turns(0.01)
    async with turns.of("c1"):
        with pytest.raises(Failed) as failed:
            async with turns.of("c1"):
                pass
        assert failed.value.error.code == Code.TRY_AGAIN_LATER
        assert turns.busy == {"c1"}
    assert turns.busy == frozenset()
    async with turns.of("c1"):
        pass


async def test_a_call_that_fails_lets_the_next_one_in() -> None:
    turns = Turns(10)
    with pytest.raises(ZeroDivisionError):
        async with turns.of("c1"):
            raise ZeroDivisionError
    async with turns.of("c1"):
        pass
