"""proxyAll is turned off, and on, under connections of the Node and of a host outside: each goes on, and ends without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
from policy_node import CONFIG, NODE, NODES, WEB
from proxy_node import BALANCED, CLUSTER, EXTERNAL, PROXY_ALL, SERVICE, SHORT, Node, endpoints

from antrea.facts.service import EarlierConnection
from antrea.features.proxy.agent_part.earlier_connections import EarlierConnectionFeed
from antrea.outside.vswitch.conntrack import Conntrack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import Namespaces

    from antrea.config.agent import AgentConfig
    from antrea.engine import Engine

SERVER = """
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)
class Server(socketserver.ThreadingTCPServer):
    address_family, daemon_threads, request_queue_size = 10, True, 20
with Server(("::", 8080), Echo) as server:
    print("listening", flush=True)
    server.serve_forever()
"""
TALK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=15) as stream:
    for line in sys.stdin:
        try:
            stream.sendall(line.encode())
            print(stream.recv(99).decode().strip(), flush=True)
        except OSError as no:
            print(type(no).__name__, flush=True)
"""
KUBE_PROXY = """
nft add table inet kube-proxy
nft add chain inet kube-proxy services '{ type nat hook prerouting priority dstnat; }'
nft add rule inet kube-proxy services ip daddr IP4 tcp dport 80 dnat ip to WEB4:8080
nft add rule inet kube-proxy services ip6 daddr IP6 tcp dport 80 dnat ip6 to [WEB6]:8080
"""
IPVS = """
ip link add name kube-ipvs0 type veth peer name other && ip link set kube-ipvs0 up && ip link set other up &&
ip address add {0}/32 dev kube-ipvs0 && ip address add {1}/128 dev kube-ipvs0 nodad
"""
"""External addresses are the Node's own, as kube-proxy of mode ipvs makes them."""


def kube_proxy() -> str:
    """Rules for external addresses."""
    rules = KUBE_PROXY
    for name, ips in (("IP", EXTERNAL), ("WEB", WEB)):
        for ip in ips:
            rules = rules.replace(f"{name}{ip_address(ip).version}", ip)
    return rules


class Talk:
    """A connection that a test holds open."""

    def __init__(self, node: Node, who: str, ip: str, port: int) -> None:
        self.name = f"{who} to {ip} port {port}"
        words = ["ip", "netns", "exec", node.pods[who], sys.executable, "-c", TALK, ip, str(port)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self, word: str) -> str:
        """What comes back."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as found:
        for row in (SERVICE, *endpoints(WEB)):
            found.facts.put(row)
        yield found


@contextlib.contextmanager
def talks(node: Node, *ways: tuple[str, tuple[str, str], int]) -> Iterator[list[Talk]]:
    """Each in IPv4 and IPv6."""
    found = [Talk(node, who, ip, port) for who, ips, port in ways for ip in ips]
    try:
        yield found
    finally:
        for talk in found:
            talk.end()


async def said(found: list[Talk], word: str) -> dict[str, str]:
    """By connection what comes back of a word."""
    back = await asyncio.gather(*(asyncio.to_thread(talk.says, word) for talk in found))
    return {talk.name: text for talk, text in zip(found, back, strict=True)}


@asynccontextmanager
async def turned(node: Node, engine: Engine, config: AgentConfig) -> AsyncIterator[None]:
    """With another configuration, after a look at the connections that there are."""
    switch = Conntrack(node.switch.directory)
    proxy_all = config.antrea_proxy.proxy_all
    feed = EarlierConnectionFeed(NODE, switch, proxy_all=proxy_all, look_seconds=0.3)
    watching = asyncio.create_task(feed.run(node.facts))
    await node.until(lambda: node.facts.feeds.has(EarlierConnection))
    node.facts.put(config)
    await engine.quiet()
    await asyncio.to_thread(node.switch.revalidate)
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_connections_go_on_with_the_switch_after_proxy_all_is_turned_off(node: Node) -> None:
    ways = [
        ("node", CLUSTER, 80),
        ("outside", NODES, 30080),
        ("outside", EXTERNAL, 80),
        ("node", BALANCED, 80),
    ]
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        with node.serving(node.pods["web"], SERVER):
            with talks(node, *ways) as found:
                assert set((await said(found, "before")).values()) == {"before"}
                async with turned(node, engine, CONFIG):
                    for word in ("after", "again"):
                        back = await said(found, word)
                        assert back == dict.fromkeys(back, word)
                    refused = await node.ask("outside", NODES[0], "SOCK_STREAM", 30080, SHORT)
                    assert refused == "ECONNREFUSED"  # whoever serves Services now takes what is new
                    for talk in found:
                        talk.end()
                    await node.until(lambda: not node.facts.all(EarlierConnection))
                    await engine.quiet()
            routes = node.netns.sh("ip route; ip -6 route")
            assert [ip for ip in (*CLUSTER, *EXTERNAL, *BALANCED) if f"{ip} " in routes] == []
            table = node.netns.sh("nft list table inet antrea")
            assert "earlier" not in table
            assert "30080" not in table
        assert not engine.errors.counts, engine.errors.counts


async def test_connections_go_on_with_the_host_after_proxy_all_is_turned_on(node: Node) -> None:
    """Those to external addresses: all others are in the host's connection tracking with proxyAll, too."""
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:  # whose switch has the tables of both
        node.facts.put(CONFIG)
        await engine.quiet()
        node.netns.sh(kube_proxy())
        with node.serving(node.pods["web"], SERVER), talks(node, ("outside", EXTERNAL, 80)) as found:
            assert set((await said(found, "before")).values()) == {"before"}
            async with turned(node, engine, PROXY_ALL):
                node.netns.sh("nft delete table inet kube-proxy")
                for word in ("after", "again"):
                    back = await said(found, word)
                    assert back == dict.fromkeys(back, word)
                with talks(node, ("outside", EXTERNAL, 80), ("node", CLUSTER, 80)) as newer:
                    assert set((await said(newer, "new")).values()) == {"new"}
                    zones = [
                        await Conntrack(node.switch.directory).connections(zone) for zone in (65520, 65510)
                    ]
                    served = {one.destination for zone in zones for one in zone}
                    assert served >= {*EXTERNAL, *CLUSTER}
                for talk in found:
                    talk.end()
                await node.until(lambda: not node.facts.all(EarlierConnection))
                await engine.quiet()
            assert "earlier" not in node.netns.sh("nft list table inet antrea")
        assert not engine.errors.counts, engine.errors.counts


async def test_the_host_serves_external_addresses_while_they_are_its_own(node: Node) -> None:
    """As the addresses have come, and again by the switch once they have gone."""
    async with node.agent(PROXY_ALL, "AntreaProxy") as engine:
        node.netns.sh(f"{IPVS.format(*EXTERNAL).strip()} && {kube_proxy().strip()}")
        with node.serving(node.pods["web"], SERVER):
            with talks(node, ("outside", EXTERNAL, 80)) as found:
                assert set((await said(found, "own")).values()) == {"own"}
                assert not await served(node)
            node.netns.sh("nft delete table inet kube-proxy && ip link delete kube-ipvs0")
            with talks(node, ("outside", EXTERNAL, 80)) as found:
                assert set((await said(found, "switch")).values()) == {"switch"}
                assert await served(node) == {*EXTERNAL}
        assert not engine.errors.counts, engine.errors.counts


async def served(node: Node) -> set[str]:
    """External addresses by which the switch has connections."""
    zones = [await Conntrack(node.switch.directory).connections(zone) for zone in (65520, 65510)]
    return {one.destination for zone in zones for one in zone} & {*EXTERNAL}
