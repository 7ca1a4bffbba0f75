"""How soon an agent that starts again holds a thousand ports of its Node, and whether one of them has changed."""

from __future__ import annotations

import asyncio
import datetime
import os
import re
import time
from typing import TYPE_CHECKING

import pytest
from agent_process import OBJECTS, agent_process
from aiohttp import web
from figure import show
from test_host_node_port_local_agent import ANNOTATION, PODS, PodsApi, config, elements, listening

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces

pytestmark = pytest.mark.wide
COUNT, PORTS, ROUNDS = 20, 50, 5
"""Pods, ports of each."""
MAX_SECONDS = 2.0
"""Seconds."""


class WithController(PodsApi):
    """A controller that has no policies answers as well: the agent waits for it before it writes what it received."""

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if "controlplane.antrea.io" not in request.path:
            return await super()._watch(request)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type": "BOOKMARK", "object": {"metadata": {}}}\n')
        await asyncio.Event().wait()
        return response


def world() -> PodsApi:
    """Pods behind a Service of that many ports."""
    server = WithController(OBJECTS)
    meta = {"namespace": "shop", "annotations": {f"{ANNOTATION}/enabled": "true"}}
    ports = [
        {"name": f"p{one}", "port": one, "protocol": "TCP", "targetPort": one}
        for one in range(8000, 8000 + PORTS)
    ]
    spec = {"type": "ClusterIP", "selector": {"app": "web"}, "ipFamilies": ["IPv4"], "ports": ports}
    server.put("/api/v1/services/web", {"metadata": meta, "spec": spec})
    for number in range(COUNT):
        server.pod(f"p{number}", f"10.10.1.{10 + number}")
    return server


def logged(log: str) -> float:
    """Unix time at which the last start was done with what comes before all features: its first sentence."""
    first = re.search(r"^[IW](\d{4} \S+) ", log, re.MULTILINE)
    assert first
    year = datetime.datetime.now().year
    return datetime.datetime.strptime(f"{year}{first[1]}", "%Y%m%d %H:%M:%S.%f").timestamp()


async def test_a_thousand_ports_are_held_soon_after_a_restart_and_none_has_changed(
    netns: Namespaces, tmp_path: Path
) -> None:
    server, names = world(), [f"p{number}" for number in range(COUNT)]
    total = COUNT * PORTS

    def texts() -> dict[str, str]:
        return {
            name: server.objects[f"{PODS}/{name}"]["metadata"]["annotations"][ANNOTATION] for name in names
        }

    async with agent_process(netns, tmp_path, os.environ, config("61000-62000"), server) as agent:
        await agent.until(lambda _: sum(len(server.ports(name)) for name in names) == total, "all have ports")
        before = texts()
        whole, held, ready = [], [], []
        for _ in range(ROUNDS):
            await agent.kill()
            assert not listening(netns)
            # while no agent runs, the rules lead to the Pods
            assert elements(netns).count("tcp . ") == total
            (tmp_path / "log").write_text("")
            began = time.time()
            await agent.start()
            await agent.until(lambda _: len(listening(netns)) == total, "all ports are held")
            whole.append(time.time() - began)
            held.append(time.time() - logged((tmp_path / "log").read_text()))
            await agent.until(lambda agent: agent.ready(), "it is ready")
            ready.append(time.time() - began)
            assert texts() == before
            assert elements(netns).count("tcp . ") == total
    show("node_port_local_restart", "s", held, target=MAX_SECONDS)
    show("node_port_local_restart_with_the_interpreter", "s", whole, target=MAX_SECONDS)
    show("agent_ready_with_node_port_local", "s", ready)
