"""When a replica may decide: not before it has heard what was written before it led."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from certificate_world import ApiServer, until
from loopback import client_of

from antrea.apis.egress_address import EGRESSES
from antrea.controller.leader import fencing as module
from antrea.controller.leader.fencing import lead_after_fencing
from antrea.engine import Facts
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import FencedLeadership
from antrea.features.egress.controller.feature import FEATURE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


def row(name: str, uid: str, generation: int) -> EgressRow:
    return EgressRow(name, uid, None, generation)


class ListedServer(ApiServer):
    """Counts how often Egresses were listed."""

    def __init__(self, objects: dict[str, Any]) -> None:
        super().__init__(objects)
        self.lists = 0

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.lists += request.path == EGRESSES
        return await super().serve(request)


@asynccontextmanager
async def leading(facts: Facts, *, fence: float = 0.0) -> AsyncIterator[ListedServer]:
    """The API server has `new` and `old`, which was changed before this replica led."""
    objects = {
        f"{EGRESSES}/{name}": {"metadata": {"uid": f"u-{name}", "generation": 2}} for name in ("new", "old")
    }
    server = ListedServer(objects)
    async with client_of(server.serve) as kube:
        task = asyncio.create_task(lead_after_fencing(kube, facts, FEATURE.watched, fence=fence))
        try:
            yield server
        finally:
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()


async def waits(facts: Facts, server: ListedServer) -> bool:
    """Whether it still waits after having looked a few times: the first of them may have begun before the call."""
    before = server.lists
    await until(lambda: server.lists >= before + 3)
    return facts.get(FencedLeadership) is None


async def test_a_replica_decides_once_every_object_is_known_as_it_was_when_it_began_to_lead() -> None:
    facts = Facts()
    facts.put(row("new", "u-new", 2))
    facts.put(row("old", "u-old", 1))
    async with leading(facts) as server:
        assert await waits(facts, server)
        server.put(f"{EGRESSES}/later", {"metadata": {"uid": "u-later", "generation": 1}})
        facts.put(row("old", "u-before", 7))
        assert await waits(facts, server)
        facts.put(row("old", "u-old", 3))
        await until(lambda: facts.get(FencedLeadership))
    assert facts.get(FencedLeadership) is None


async def test_an_object_that_goes_meanwhile_is_not_waited_for() -> None:
    facts = Facts()
    facts.put(row("new", "u-new", 2))
    async with leading(facts) as server:
        assert await waits(facts, server)
        server.drop(f"{EGRESSES}/old")
        await until(lambda: facts.get(FencedLeadership))


async def test_while_the_api_server_refuses_nothing_is_decided_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = Facts()
    facts.put(row("new", "u-new", 2))
    facts.put(row("old", "u-old", 2))
    asked: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"message": "starting"}, status=503)

    monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)
    async with client_of(refuse) as kube:
        with caplog.at_level("INFO", "antrea"):
            task = asyncio.create_task(lead_after_fencing(kube, facts, FEATURE.watched, fence=0.0))
            await until(lambda: len(asked) > 3)
            task.cancel()
            await asyncio.wait({task})
    said = [one for one in caplog.records if one.message.startswith("Waiting for kube-apiserver")]
    assert (facts.get(FencedLeadership), len(said)) == (None, 1)


async def test_nothing_is_decided_while_writes_of_another_leader_may_still_come() -> None:
    facts = Facts()
    for name in ("new", "old"):
        facts.put(row(name, f"u-{name}", 2))
    begun = asyncio.get_running_loop().time()
    async with leading(facts, fence=0.3):
        await until(lambda: facts.get(FencedLeadership))
    assert asyncio.get_running_loop().time() - begun >= 0.3
