"""The controller keeps one AntreaAgentInfo for each Node."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from certificate_world import api_server, until

from antrea.config.controller import ControllerConfig
from antrea.controller.managed.agent_infos import PATH, AgentInfos, NodeWithInfo
from antrea.engine import Facts
from antrea.features.framework.controller_part import ControllerContext
from antrea.features.framework.watch_plan import watch_plan
from antrea.outside.kube.leadership import Leadership
from antrea.outside.kube.resource_feed import ResourceFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antrea.outside.kube.client import Kube

NODES, MACHINES = "/api/v1/nodes", "/apis/crd.antrea.io/v1alpha1/externalnodes"


@asynccontextmanager
async def leader(kube: Kube, facts: Facts, seconds: float = 600, *gates: str) -> AsyncIterator[AgentInfos]:
    """A replica that leads, without the watches of its facts."""
    context = ControllerContext(
        config=ControllerConfig(), gates=frozenset(gates), facts=facts, kube=kube, lead=Leadership(), namespace="kube-system"
    )  # fmt: skip
    infos = AgentInfos(context, seconds)
    task = asyncio.create_task(infos.run_while_leading())
    try:
        yield infos
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def watching(kube: Kube, facts: Facts, infos: AgentInfos) -> AsyncIterator[None]:
    """The watches that the controller makes for it."""
    feeds = [ResourceFeed(kube, one.path, one.kind, rows=one.rows) for one in watch_plan(infos.watched())]
    tasks = [asyncio.create_task(feed.run(facts)) for feed in feeds]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_agent_infos_come_and_go_with_their_nodes_and_what_agents_wrote_stays() -> None:
    told = {"apiPort": 10350}
    world = {f"{NODES}/n1": {}, f"{NODES}/n2": {}, f"{PATH}/n1": told, f"{PATH}/gone": told}
    facts = Facts()
    async with (
        api_server(world) as (server, kube),
        leader(kube, facts, 0.05) as infos,
        watching(kube, facts, infos),
    ):

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


async def test_an_external_node_has_an_agent_info_too() -> None:
    facts = Facts()
    world = {
        f"{NODES}/n1": {},
        f"{MACHINES}/vm1": {
            "metadata": {"namespace": "vm-ns"},
            "spec": {"interfaces": [{"ips": ["192.0.2.9"]}]},
        },
    }
    async with (
        api_server(world) as (server, kube),
        leader(kube, facts, 600, "ExternalNode") as infos,
        watching(kube, facts, infos),
    ):
        await until(lambda: {f"{PATH}/n1", f"{PATH}/vm1"} <= set(server.objects))
        server.drop(f"{MACHINES}/vm1")
        await until(lambda: f"{PATH}/vm1" not in server.objects)
        assert f"{PATH}/n1" in server.objects


async def test_a_leader_whose_watch_lags_deletes_no_agent_info_of_a_node_that_exists() -> None:
    facts = Facts()
    world = {f"{NODES}/n1": {}, f"{NODES}/new": {}, f"{PATH}/new": {"apiPort": 10350}, f"{PATH}/gone": {}}
    async with api_server(world) as (server, kube), leader(kube, facts):
        # its watch has not received the Node `new`
        facts.put(NodeWithInfo("n1"))
        facts.synced(NodeWithInfo)
        await until(lambda: f"{PATH}/n1" in server.objects and f"{PATH}/gone" not in server.objects)
        assert server.objects[f"{PATH}/new"]["apiPort"] == 10350


async def test_agent_infos_that_cannot_be_written_are_tried_again() -> None:
    facts = Facts()
    async with api_server({f"{NODES}/n1": {}}) as (server, kube):
        server.refuse = "not yet"
        async with leader(kube, facts) as infos, watching(kube, facts, infos):
            await until(lambda: bool(server.writes))
            server.refuse = ""
            await until(lambda: f"{PATH}/n1" in server.objects)
