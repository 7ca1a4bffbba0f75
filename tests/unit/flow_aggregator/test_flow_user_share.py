"""A user's questions wait behind at most one of each other user, however many those have asked."""

import asyncio

import pytest

from antrea.errors import Unavailable
from antrea.flow_aggregator.user_antctl import UserShare


async def test_a_user_with_many_questions_keeps_nobody_waiting() -> None:
    share, order = UserShare(1), list[str]()
    go_on = asyncio.Event()

    async def ask(user: str) -> None:
        async with share.place(user, 60):
            await go_on.wait()
            order.append(user)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(ask("many"))
        await asyncio.sleep(0)
        tasks.create_task(ask("one"))
        await asyncio.sleep(0)
        go_on.set()
    assert order == ["many", "one", "many", "many", "many", "many"]
    assert share._waiting == {}


async def test_two_users_are_answered_at_a_time_and_who_waits_in_vain_is_told() -> None:
    share = UserShare(2)
    async with share.place("a", 60), share.place("b", 60):
        for user in ("a", "c"):
            with pytest.raises(Unavailable, match="try again"):
                async with share.place(user, 0.01):
                    pass
    async with share.place("a", 0.01), share.place("c", 0.01):
        assert set(share._waiting) == {"a", "c"}
    assert share._waiting == {}
