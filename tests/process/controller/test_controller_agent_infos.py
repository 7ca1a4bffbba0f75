"""The controller keeps one AntreaAgentInfo for each Node."""

from __future__ import annotations

import asyncio

from certificate_world import api_server, until

from antrea.controller.managed.agent_infos import PATH, AgentInfos

NODES = "/api/v1/nodes"


async def test_agent_infos_come_and_go_with_their_nodes_and_what_agents_wrote_stays() -> None:
    told = {"apiPort": 10350}
    world = {f"{NODES}/n1": {}, f"{NODES}/n2": {}, f"{PATH}/n1": told, f"{PATH}/gone": told}
    async with api_server(world) as (server, kube):
        task = asyncio.create_task(AgentInfos(kube, 0.05).run())

        def names() -> list[str]:
            return sorted(path.removeprefix(f"{PATH}/") for path in server.objects if path.startswith(PATH))

        await until(lambda: names() == ["n1", "n2"])
        assert server.objects[f"{PATH}/n1"]["apiPort"] == 10350
        made = {key: one for key, one in server.objects[f"{PATH}/n2"].items() if key != "metadata"}
        assert made == {
            "apiVersion": "crd.antrea.io/v1beta1",
            "kind": "AntreaAgentInfo",
            "podRef": {},
            "nodeRef": {},
            "ovsInfo": {},
            "networkPolicyControllerInfo": {},
            "networkInfo": {},
        }
        server.put(f"{NODES}/n3", {})
        server.drop(f"{NODES}/n1")
        await until(lambda: names() == ["n2", "n3"])
        # somebody else deletes one
        server.drop(f"{PATH}/n3")
        await until(lambda: names() == ["n2", "n3"])
        task.cancel()
        await asyncio.wait([task])


async def test_agent_infos_that_cannot_be_written_are_tried_again() -> None:
    async with api_server({f"{NODES}/n1": {}}) as (server, kube):
        server.refuse = "not yet"
        task = asyncio.create_task(AgentInfos(kube).run())
        await until(lambda: bool(server.writes))
        server.refuse = ""
        await until(lambda: f"{PATH}/n1" in server.objects)
        task.cancel()
        await asyncio.wait([task])
