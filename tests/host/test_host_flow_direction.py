"""A connection keeps its direction in records when connection tracking has lost it: real packets, real connection tracking."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from flow_node import FlowNode, until
from policy_node import WEB
from proxy_node import PROXY_ALL

from antrea.apis.flow import BiflowDirection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

    from antrea.apis.flow import FlowRecord

TICKER = """
import contextlib, socket, time
port = {port}
server = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
client, _ = server.accept()
while True:
    client.sendall(b"tick")
    time.sleep(0.2)
"""
"""Sends to its client, which says nothing: the first packet after a loss is the server's."""
READER = """
import socket, sys
port = int(sys.argv[2])
client = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
client.bind(("::" if ":" in sys.argv[1] else "0.0.0.0", int(sys.argv[3])))
client.connect((sys.argv[1], port))
print("connected", flush=True)
while client.recv(99):
    print("tick", flush=True)
"""
CLIENT_PORT = 45678


@pytest.fixture
def node(netns: Namespaces) -> Iterator[FlowNode]:
    with FlowNode(netns).standing() as found:
        yield found


@contextlib.contextmanager
def reading(node: FlowNode, ip: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """A client `near` of a server in `web` that sends all the time."""
    words = ["ip", "netns", "exec", node.pods["near"], sys.executable, "-c", READER, ip, str(port)]
    with (
        node.serving(node.pods["web"], TICKER.format(port=port)),
        subprocess.Popen([*words, str(CLIENT_PORT)], stdout=subprocess.PIPE, text=True) as client,
    ):
        try:
            assert client.stdout
            assert client.stdout.readline() == "connected\n"
            yield client
        finally:
            client.kill()


async def goes_on(client: subprocess.Popen[str]) -> None:
    """It is heard that the server sends."""
    assert client.stdout
    for _ in range(5):
        assert await asyncio.to_thread(client.stdout.readline) == "tick\n"


def of_the_stream(got: list[FlowRecord]) -> set[tuple[str, int, str, int, str, int]]:
    return {
        (one.source_ip, one.source_transport_port, one.destination_ip, one.destination_transport_port,
         one.source_pod_name, one.biflow_direction)
        for one in got if CLIENT_PORT in (one.source_transport_port, one.destination_transport_port)
    }  # fmt: skip


async def first_record(node: FlowNode, got: list[FlowRecord]) -> set[tuple[str, int, str, int, str, int]]:
    await until(lambda: of_the_stream(got))
    return of_the_stream(got)


async def forget(node: FlowNode, client: subprocess.Popen[str], port: int) -> None:
    """As a switch that was restarted, until the server's packet is the first one after it."""
    first = f"sport={port},dport={CLIENT_PORT})"
    async with asyncio.timeout(30):
        while True:
            node.switch.appctl("dpctl/flush-conntrack")
            await goes_on(client)
            dump = node.switch.appctl("dpctl/dump-conntrack")
            if any(first in line.split(",reply=")[0] for line in dump.splitlines()):
                return


@pytest.mark.parametrize("family", [0, 1])
async def test_a_standing_stream_keeps_its_direction_when_the_switch_forgets_it(
    node: FlowNode, family: int
) -> None:
    """Nothing but what was seen before says which end has opened it: neither port is one of a server."""
    client_ip, port = ("10.10.0.8", "fd00:10::8")[family], 50123
    wanted = (client_ip, CLIENT_PORT, WEB[family], port, "near", BiflowDirection.INITIATOR)
    async with node.exporting(PROXY_ALL) as got:
        with reading(node, WEB[family], port) as client:
            await goes_on(client)
            assert await first_record(node, got) == {wanted}
            for _ in range(2):
                await forget(node, client, port)
                got.clear()
                assert await first_record(node, got) == {wanted}


@pytest.mark.parametrize(
    ("port", "wanted"),
    [
        (9999, ("10.10.0.8", CLIENT_PORT, WEB[0], 9999, "near", BiflowDirection.INITIATOR)),
        (50123, (WEB[0], 50123, "10.10.0.8", CLIENT_PORT, "web", BiflowDirection.ARBITRARY)),
    ],
    ids=["by-the-port-of-a-server", "unknown"],
)
async def test_an_agent_that_has_seen_nothing_before_derives_the_direction_or_says_that_it_is_unknown(
    node: FlowNode, port: int, wanted: tuple[str, int, str, int, str, int]
) -> None:
    async with contextlib.AsyncExitStack() as standing:
        async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
            await engine.quiet()
            client = standing.enter_context(reading(node, WEB[0], port))
            await goes_on(client)
        await forget(node, client, port)
        async with node.exporting(PROXY_ALL) as got:
            assert await first_record(node, got) == {wanted}
