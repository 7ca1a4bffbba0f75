"""How many agents all replicas serve, as the leader counts them."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from antrea.controller.crowd import PATH, Crowd
from antrea.errors import Invalid


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_number_is_that_of_all_replicas_that_still_say_theirs() -> None:
    clock = Clock()
    crowd = Crowd(clock)
    crowd.own = 2
    crowd.hear("a", 5)
    clock.now = 60.0
    crowd.hear("b", 7)
    assert crowd.total() == 14
    crowd.hear("b", 6)
    clock.now = 91.0
    assert crowd.total() == 8


def test_a_leader_is_told_when_the_number_changes_when_it_is_another_one_and_from_time_to_time() -> None:
    clock = Clock()
    crowd = Crowd(clock)
    assert crowd.owes("x:1")
    crowd.told("x:1")
    assert (crowd.owes("x:1"), crowd.owes("y:1")) == (False, True)
    crowd.own = 1
    assert crowd.owes("x:1")
    crowd.told("x:1")
    clock.now = 30.0
    assert crowd.owes("x:1")


async def test_a_replica_says_its_number_in_a_request() -> None:
    crowd = Crowd()
    app = web.Application()
    app.router.add_put(PATH, crowd.handler())
    async with TestClient(TestServer(app)) as client:
        said = await client.put(f"{PATH}?replica=a&agents=12")
        assert (said.status, crowd.total()) == (200, 12)


@pytest.mark.parametrize("agents", ["", "-1", "x", "1" * 10])
async def test_what_is_no_number_is_refused(agents: str) -> None:
    request = type("Request", (), {"query": {"agents": agents}})()
    with pytest.raises(Invalid, match="must be a number"):
        await Crowd().handler()(request)
