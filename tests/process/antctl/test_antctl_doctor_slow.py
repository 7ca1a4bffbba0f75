"""How the control plane is read from a kube-apiserver that is slow, or that lets nothing be read."""

from __future__ import annotations

import asyncio

from aiohttp import web
from loopback import answering

from antrea.antctl.doctor.control_plane.cluster_state import ClusterState, collect
from antrea.antctl.request import Server
from antrea.outside.kube.access import Access

LIMIT = 0.3
"""Seconds for a request."""


class Slow:
    """Answers lists at once, with nothing in them, and single objects after `pause`."""

    def __init__(self, pause: float = 0.0, status: int = 200) -> None:
        self.pause = pause
        self.status = status
        self.asked = 0

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.asked += 1
        if "limit" not in request.query:
            await asyncio.sleep(self.pause)
        return web.json_response({"items": []}, status=self.status)


async def state_of(server: Slow) -> ClusterState:
    async with answering(server.answer) as url:
        return await asyncio.to_thread(collect, Server(Access(url=url), LIMIT))


async def test_requests_that_are_given_up_count_as_slow() -> None:
    state = await state_of(Slow(pause=2 * LIMIT))
    assert state.certificate is None
    assert "timed out" in state.unseen["certificate"]
    assert state.latency is not None
    assert LIMIT <= state.latency < 2 * LIMIT


async def test_where_no_program_can_be_read_nothing_else_is_asked_for() -> None:
    server = Slow(status=403)
    state = await state_of(server)
    assert (state.daemon_sets, state.deployments, state.pods) == (None, None, None)
    assert state.unseen["pods"].startswith("request to server failed: Forbidden")
    assert server.asked == 5
