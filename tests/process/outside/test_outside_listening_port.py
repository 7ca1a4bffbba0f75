"""Which ports are in use, as the kernel of this machine says it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.facts.node import LocalAddress
from antrea.facts.service import ListeningPorts, Service
from antrea.features.proxy.agent_part.listening_ports import ListeningPortFeed
from antrea.outside.netlink.listening_port import RANGE, listening_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WEB = Service("a", "web", ("10.96.0.1", "192.0.2.1"), (("TCP", 80),), external_ips=("192.0.2.1",))


def free_port(family: int, kind: int, at: str) -> socket.socket:
    """A socket at a port that the kernel does not give to clients, as that of a server."""
    low = int(RANGE.read_text().split()[0])
    for port in range(low - 1, 1024, -1):
        found = socket.socket(family, kind)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        with contextlib.suppress(OSError):
            found.bind((at, port))
            return found
        found.close()
    raise AssertionError("no free port")


@pytest.mark.parametrize(
    ("family", "at", "shown"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "0.0.0.0"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", ""),
        (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_a_socket_is_listed_with_its_address_once_it_listens(
    family: int, at: str, shown: str, protocol: str
) -> None:
    with free_port(family, socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM, at) as server:
        row = (protocol, shown, server.getsockname()[1])
        if protocol == "TCP":
            assert row not in set(listening_ports())
            server.listen()
        assert row in set(listening_ports())
    assert row not in set(listening_ports())


def test_connections_and_clients_are_not_listed() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0],
    ):
        port = client.getsockname()[1]
        assert port not in {number for _, _, number in listening_ports()}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.bind(("127.0.0.1", 0))
        assert ("UDP", "127.0.0.1", asking.getsockname()[1]) not in set(listening_ports())


@pytest.mark.parametrize(
    "text", ["", "header\nnonsense\n", "header\n 0: XX:YY 0 0A 0\n", "header\n 0: 0100007F 0 0A\n"]
)
def test_a_table_that_cannot_be_read_is_no_answer(tmp_path: Path, text: str) -> None:
    (tmp_path / "tcp").write_text(text)
    if text:
        with pytest.raises(Unavailable):
            list(listening_ports(tmp_path))
    else:
        assert list(listening_ports(tmp_path)) == []
    with pytest.raises(Unavailable):
        list(listening_ports(tmp_path, tmp_path / "none"))


async def test_ports_are_read_while_a_service_has_an_address_of_the_node() -> None:
    facts, now = Facts(), {("TCP", "", 80)}
    reads = 0

    def read() -> Iterator[tuple[str, str, int]]:
        nonlocal reads
        reads += 1
        yield from now

    feed = ListeningPortFeed(read, proxy_all=True, look_seconds=0.01, held_seconds=0.2)
    running = asyncio.create_task(feed.run(facts))

    async def shown(ports: set[tuple[str, str, int]]) -> None:
        async with asyncio.timeout(10):
            while (row := facts.get(ListeningPorts, "")) is None or row.ports != ports:  # noqa: ASYNC110 (a thread reads them)
                await asyncio.sleep(0.01)

    try:
        await asyncio.sleep(0)
        assert not facts.feeds.has(ListeningPorts), "Services are not known yet"
        facts.put(WEB)
        facts.put(LocalAddress("192.0.2.1", "eth0"))
        await shown({("TCP", "", 80)})
        assert facts.feeds.has(ListeningPorts)
        now.clear()
        await asyncio.sleep(0.05)
        await shown({("TCP", "", 80)})  # a program that restarts keeps its port
        await shown(set())
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert reads > 2
    other = Facts()
    await ListeningPortFeed(read, proxy_all=False).run(other)
    assert other.feeds.has(ListeningPorts)
