"""External IPs that are the Node's own, with packets: served from outside, to Pods and to the Node; what listens there keeps its port."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_node import NODES, OUTSIDE, WEB
from proxy_node import CLUSTER, GATEWAYS, NEAR, PROXY_ALL, SERVER, SERVICE, SHORT, Node, endpoints

from antrea.facts.service import Service, ServicePort
from antrea.features.proxy.agent_part.listening_ports import ListeningPortFeed
from antrea.features.proxy.external_address import ExternalIPConflict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import Namespaces

OWN = msgspec.structs.replace(
    SERVICE,
    ips=CLUSTER + NODES,
    ports=(("TCP", 8888), ("UDP", 8888)),
    external_ips=NODES,
    node_ports=(0, 0),
    load_balancer_ips=(),
)
PROGRAM = """
import socket
server = socket.create_server(("::", 9999), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
while True:
    client, _ = server.accept()
    client.sendall(b"program")
    client.close()
"""


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


@contextlib.asynccontextmanager
async def ports_read(node: Node) -> AsyncIterator[None]:
    """As the agent reads them, but sooner."""
    feed = ListeningPortFeed(proxy_all=True, look_seconds=0.2, held_seconds=0.5)
    reading = asyncio.create_task(feed.run(node.facts))
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def served(node: Node, key: str, ips: tuple[str, ...]) -> None:
    """Until the agent serves a port at these addresses of the Node."""
    async with asyncio.timeout(30):
        while (row := node.facts.get(ServicePort, key)) is None or set(row.own_ips) != set(ips):  # noqa: ASYNC110 (sockets)
            await asyncio.sleep(0.05)


async def test_all_who_ask_the_address_of_the_node_are_answered(node: Node) -> None:
    for row in (OWN, *endpoints(WEB)):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine, ports_read(node):
        await served(node, "shop/web:8888/UDP", NODES)
        await engine.quiet()
        with node.serving(node.pods["web"], SERVER):
            await node.becomes(OUTSIDE * 2, "outside", NODES, 8888)
            assert await node.asks("near", NODES, 8888) == NEAR * 2
            assert await node.asks("node", NODES, 8888) == GATEWAYS * 2
            assert await node.asks("node", CLUSTER, 8888) == GATEWAYS * 2
            node.facts.drop(Service, OWN.key)
            await engine.quiet()
            assert "ECONNREFUSED" in await node.asks("outside", NODES, 8888, seconds=SHORT)
        assert not engine.errors.counts


async def test_a_program_of_the_node_keeps_the_port_that_it_listens_at(node: Node) -> None:
    wanted = msgspec.structs.replace(OWN, ports=(("TCP", 9999), ("UDP", 8888)))
    events: list[str] = []

    async def told(act: ExternalIPConflict) -> None:
        events.append(act.message)

    with node.serving(node.netns.home, PROGRAM), node.serving(node.pods["web"], SERVER):
        for row in (wanted, *endpoints(WEB)):
            node.facts.put(row)
        async with node.agent(PROXY_ALL, "AntreaProxy", more={ExternalIPConflict: told}), ports_read(node):
            await served(node, "shop/web:8888/UDP", NODES)
            for ip in NODES:
                for who in ("outside", "near", "node"):
                    assert await node.ask(who, ip, "SOCK_STREAM", 9999, 10) == "program"
            async with asyncio.timeout(30):
                while len(events) < 2:  # noqa: ASYNC110 (written by the engine)
                    await asyncio.sleep(0.05)
    assert sorted(events) == [
        f"{ip}, port 9999/TCP of Node n1 is for a program of the Node, which listens there: the Service is not served there"
        for ip in NODES
    ]
