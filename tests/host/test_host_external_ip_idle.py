"""Whether connections use an external IP of a Service, as seen by the Node: translated by the kernel, or by the switch (proxyAll)."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import pytest
from policy_node import WEB
from proxy_node import BALANCED, PROXY_ALL, SERVICE, Node, endpoints

from antrea.engine import Facts
from antrea.facts.egress import UnusedAddress
from antrea.facts.external_ip import ExternalIPOwner
from antrea.features.external_ip_pool.agent_part.idle_detector import IdleFeed
from antrea.outside.netlink.conntrack import connected
from antrea.outside.vswitch.conntrack import Conntrack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import Namespaces

IPS = {4: "192.0.2.40", 6: "2001:db8::40"}
HOLDING = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30) as stream:
    stream.sendall(b"x")
    assert stream.recv(1) == b"x"
    print("connected", flush=True)
    sys.stdin.readline()
"""
ECHO = """
import socket, threading
server = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
def answer(client):
    while data := client.recv(99):
        client.sendall(data)
    client.close()
while True:
    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
"""


@contextlib.asynccontextmanager
async def holding(space: str, ip: str, port: int) -> AsyncIterator[None]:
    """A host has a connection to the address."""
    words = ("ip", "netns", "exec", space, sys.executable, "-c", HOLDING, ip, str(port))
    client = await asyncio.create_subprocess_exec(*words, stdin=-1, stdout=-1)
    assert client.stdout is not None
    assert await client.stdout.readline() == b"connected\n"
    yield
    await client.communicate(b"\n")


@contextlib.asynccontextmanager
async def feeding(facts: Facts, switch: Conntrack | None = None) -> AsyncIterator[None]:
    feed = asyncio.create_task(IdleFeed("n1", idle_seconds=1, switch=switch).run(facts))
    yield
    feed.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await feed


def waits(ip: str) -> ExternalIPOwner:
    return ExternalIPOwner(f"shop/web{ip}", ip, "p", "n1", keeps=True, home="n2")


async def idle(facts: Facts, ip: str, *, is_idle: bool = True) -> None:
    """Wait until the feed has it so."""
    for _ in range(1500):
        if (facts.get(UnusedAddress, ip) is not None) == is_idle:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{ip}: not idle={is_idle} within 30 s")


@pytest.fixture
def host(netns: Namespaces) -> str:
    """Beyond eth0; the addresses lead to a process of this Node, as kube-proxy does it."""
    space = netns.make()
    netns.sh(
        f"ip link add eth0 type veth peer name eth0 netns {space}; ip link set lo up; ip link set eth0 up;"
        " ip addr add 192.0.2.1/24 dev eth0; ip addr add 2001:db8::1/64 dev eth0 nodad"
    )
    netns.sh(
        "ip link set eth0 up; ip addr add 192.0.2.9/24 dev eth0; ip addr add 2001:db8::9/64 dev eth0 nodad;"
        f" ip route add {IPS[4]} via 192.0.2.1; ip route add {IPS[6]} via 2001:db8::1",
        space,
    )
    for family, ip, to in (("ip", IPS[4], "192.0.2.1"), ("ip6", IPS[6], "[2001:db8::1]")):
        netns.sh(
            f"nft 'table {family} proxy {{ chain services {{ type nat hook prerouting priority dstnat;"
            f" {family} daddr {ip} tcp dport 80 dnat to {to}:8080; }}; }}'"
        )
    return space


@pytest.mark.parametrize("version", [4, 6])
async def test_a_connection_that_the_kernel_translates_keeps_an_address_in_use_until_it_ends(
    host: str, version: int
) -> None:
    facts, ip = Facts(), IPS[version]
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", ECHO, stdout=-1)
    try:
        assert server.stdout is not None
        assert await server.stdout.readline() == b"listening\n"
        facts.put(waits(ip))
        async with feeding(facts):
            await idle(facts, ip)
            async with holding(host, ip, 80):
                await idle(facts, ip, is_idle=False)
                assert connected({*IPS.values(), "192.0.2.1"}, to=True) == {ip}
                assert connected({ip}, to=True) == {ip}
                assert connected({ip}) == set()
            await idle(facts, ip)
            facts.drop(ExternalIPOwner, waits(ip).key)
            await idle(facts, ip, is_idle=False)
    finally:
        server.kill()
        await server.wait()


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        yield found


@pytest.mark.parametrize("number", [0, 1])
async def test_a_connection_that_the_switch_translates_keeps_an_address_in_use_until_it_ends(
    node: Node, number: int
) -> None:
    ip = BALANCED[number]
    for row in (SERVICE, *endpoints(WEB)):
        node.facts.put(row)
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(node.pods["web"], ECHO):
            facts = Facts()
            facts.put(waits(ip))
            await engine.quiet()
            async with feeding(facts, Conntrack(node.switch.directory)):
                await idle(facts, ip)
                async with holding(node.pods["outside"], ip, 80):
                    await idle(facts, ip, is_idle=False)
                    assert connected({ip}, to=True) == set()
                await idle(facts, ip)
