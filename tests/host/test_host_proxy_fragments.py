"""Datagrams above the MTU reach a Service on the userspace datapath, where fragments come to the choice of an Endpoint without ports.

With the switch of the image: OVS 3.1 tracks the port of the first fragment alone.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import image_switch
import pytest
from policy_node import NODES, WEB
from proxy_node import BALANCED, CLUSTER, PROXY_ALL, SERVICE, Node, endpoints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

SIZES = (2000, 9000)
"""Of two fragments, and of several."""
SERVER = """
import socket
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.bind(("::", 8080))
print("listening", flush=True)
while True:
    data, peer = udp.recvfrom(65535)
    udp.sendto(data, peer)
"""
CLIENT = """
import errno, socket, sys
address, port = sys.argv[1], int(sys.argv[2])
def answer(size):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.connect((address, port))
        client.send(bytes(size))
        return len(client.recv(65535))
for size in map(int, sys.argv[3:]):
    try:
        print(answer(size))
    except OSError as no:
        # the MTU of the path is known now
        print(answer(size) if no.errno == errno.EMSGSIZE else type(no).__name__)
"""
"""Each size is the first datagram of a connection; prints the size of each answer."""


@pytest.fixture
def node(netns: Namespaces, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("PATH", f"{image_switch.first_in_path()}:{os.environ['PATH']}")
    with Node(netns).standing() as found:
        yield found


async def sizes(node: Node, who: str, ip: str, port: int) -> list[str]:
    words = ["ip", "netns", "exec", node.pods[who], sys.executable, "-c", CLIENT, ip, str(port)]
    await asyncio.to_thread(node.switch.revalidate)
    run = await asyncio.to_thread(
        subprocess.run, [*words, *map(str, SIZES)], stdout=-1, text=True, check=True, timeout=60
    )
    return str(run.stdout).split()


async def test_the_first_datagram_of_a_connection_may_be_of_several_fragments(node: Node) -> None:
    for row in (SERVICE, *endpoints(WEB)):
        node.facts.put(row)
    wanted = list(map(str, SIZES))
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(node.pods["web"], SERVER):
            for six in (False, True):
                for who, to, port in (
                    ("near", CLUSTER, 80),
                    ("node", CLUSTER, 80),
                    ("outside", NODES, 30080),
                    ("outside", BALANCED, 80),
                ):
                    assert await sizes(node, who, to[six], port) == wanted, (who, to[six])
        assert not engine.errors.counts
