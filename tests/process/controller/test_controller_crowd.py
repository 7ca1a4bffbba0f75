"""How many agents all replicas serve, as the leader counts them."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from antrea.controller.apiserver.connected_agents import PATH, ConnectedAgents
from antrea.errors import Invalid


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_number_is_that_of_all_replicas_that_still_say_theirs() -> None:
    clock = Clock()
    agents = ConnectedAgents(clock)
    agents.own = 2
    agents.record("a", 5)
    clock.now = 60.0
    agents.record("b", 7)
    assert agents.total() == 14
    agents.record("b", 6)
    clock.now = 91.0
    assert agents.total() == 8


def test_a_leader_is_told_when_the_number_changes_when_it_is_another_one_and_from_time_to_time() -> None:
    clock = Clock()
    agents = ConnectedAgents(clock)
    assert agents.needs_report("x:1")
    agents.reported("x:1")
    assert (agents.needs_report("x:1"), agents.needs_report("y:1")) == (False, True)
    agents.own = 1
    assert agents.needs_report("x:1")
    agents.reported("x:1")
    clock.now = 30.0
    assert agents.needs_report("x:1")


async def test_a_replica_says_its_number_in_a_request() -> None:
    agents = ConnectedAgents()
    app = web.Application()
    app.router.add_put(PATH, agents.handler())
    async with TestClient(TestServer(app)) as client:
        said = await client.put(f"{PATH}?replica=a&agents=12")
        assert (said.status, agents.total()) == (200, 12)


@pytest.mark.parametrize("agents", ["", "-1", "x", "1" * 10])
async def test_what_is_no_number_is_refused(agents: str) -> None:
    request = type("Request", (), {"query": {"agents": agents}})()
    with pytest.raises(Invalid, match="must be a number"):
        await ConnectedAgents().handler()(request)
