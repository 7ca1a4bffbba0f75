"""What the controller says of itself in its object."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
from aiohttp import web
from loopback import client_of

from antrea.apis.system import NetworkPolicyControllerInfo
from antrea.controller.apiserver.process import ApiServerProcess
from antrea.controller.leader.replica import Replica
from antrea.controller.managed.controller_info import ControllerInfo
from antrea.engine import Facts


async def test_counts_that_become_none_leave_an_empty_part_as_upstreams() -> None:
    """Where the API server refuses {} over counts, as a real one does: it would store null."""
    written: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    stands: dict[str, Any] = {}

    async def answer(request: web.Request) -> web.Response:
        sent = msgspec.json.decode(await request.read())
        counts = sent.get("networkPolicyControllerInfo")
        if counts == {} and stands.get("counts"):
            return web.json_response({"message": 'must be of type object: "null"'}, status=422)
        stands["counts"] = counts
        written.put_nowait(sent)
        return web.json_response({})

    async with client_of(answer) as kube:
        front = ApiServerProcess(Facts())
        front.port, front.agents = 10349, 2
        publisher: Any = SimpleNamespace(put=lambda *_: None)
        info = ControllerInfo(front, publisher, Replica(kube), "v1")
        info.counts = lambda: NetworkPolicyControllerInfo(network_policy_num=3)
        task = asyncio.create_task(info.run())
        async with asyncio.timeout(30):
            first = await written.get()
            info.counts = NetworkPolicyControllerInfo
            front.changed()
            between, last = await written.get(), await written.get()
        task.cancel()
        await asyncio.wait([task])
    assert first["networkPolicyControllerInfo"] == {"networkPolicyNum": 3}
    assert "networkPolicyControllerInfo" not in between
    assert last == {**between, "networkPolicyControllerInfo": {}}
    assert last["connectedAgentNum"] == 2
