"""What the controller says of itself in its object."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
from aiohttp import web
from loopback import client_of

from antrea.apis.system import NetworkPolicyControllerInfo
from antrea.controller.front_process import FrontProcess
from antrea.controller.info import ControllerInfo
from antrea.controller.replica import Replica
from antrea.engine import Facts


async def test_counts_of_nothing_are_left_out_since_the_definition_takes_no_null_for_them() -> None:
    written: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def answer(request: web.Request) -> web.Response:
        written.put_nowait(msgspec.json.decode(await request.read()))
        return web.json_response({})

    async with client_of(answer) as kube:
        front = FrontProcess(Facts())
        front.port, front.agents = 10349, 2
        publisher: Any = SimpleNamespace(put=lambda *_: None)
        info = ControllerInfo(front, publisher, Replica(kube), "v1")
        info.counts = lambda: NetworkPolicyControllerInfo(network_policy_num=3)
        task = asyncio.create_task(info.run())
        async with asyncio.timeout(30):
            first = await written.get()
            info.counts = NetworkPolicyControllerInfo
            front.changed()
            second = await written.get()
        task.cancel()
        await asyncio.wait([task])
    assert first["networkPolicyControllerInfo"] == {"networkPolicyNum": 3}
    assert "networkPolicyControllerInfo" not in second
    assert second["connectedAgentNum"] == 2
