"""Two real switches watch each other by BFD over tunnels of their own, and say soon that the other is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from typing import TYPE_CHECKING

import pytest
from netdev_switch import NetdevSwitch, until
from wide_pool import wide_pool

from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.member import AgentNode, PoolSelector
from antrea.facts.node import ThisNode
from antrea.features.egress.agent.bfd import UNITS
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT, tunnel_port
from antrea.host.ovs_port import Port
from antrea.host.tunnel_neighbour import TunnelNeighbour
from antrea.outside.ovsdb import bfd_feed
from antrea.outside.ovsdb import write as ovsdb_write
from antrea.outside.ovsdb.bfd_feed import BfdFeed
from antrea.outside.ovsdb.client import Ovsdb
from antrea.outside.vswitch.ofctl import Ofctl
from antrea.outside.vswitch.port_sink import PortSink
from antrea.outside.vswitch.tunnel_neighbour_sink import TunnelNeighbourSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import Namespaces

CONFIG = AgentConfig(ovs_datapath_type="netdev")
BRIDGE = "br-int"
ADDRESSES = {4: ("172.31.9.11", "172.31.9.12"), 6: ("fd00:172:31::11", "fd00:172:31::12")}
PREFIX = {4: 24, 6: 64}
NAMES = ("node-a", "node-b")


class Node:
    """One end: a switch with br-phy and br-int, the units over two candidates, and what its feed of BFD says."""

    def __init__(self, netns: Namespaces, space: str, name: str, version: int) -> None:
        own, other = ADDRESSES[version] if name == NAMES[0] else reversed(ADDRESSES[version])
        self.netns, self.space, self.name, self.own, self.other = netns, space, name, own, other
        self.version = version
        self.switch = NetdevSwitch(space)
        self.facts = Facts()
        self.seen: bool | None = None
        """Whether the other one's switch is up."""
        self.words: list[bool | None] = []
        """All that was said of that."""
        self.facts.put(CONFIG)
        self.facts.put(ThisNode(name, transport_ips=(own,)))
        for known, address in zip(NAMES, ADDRESSES[version], strict=True):
            self.facts.put(AgentNode(known, (address,), (address,)))

    def start(self) -> None:
        self.switch.start()
        self.switch.vsctl("add-br", "br-phy", "--", "set", "bridge", "br-phy", "datapath_type=netdev")
        self.switch.vsctl("add-port", "br-phy", "eth1")
        self.switch.add_bridge(BRIDGE)
        self.address()

    def address(self) -> None:
        """What the agent gives br-phy, whenever it is a new device."""
        nodad = "nodad" if self.version == 6 else ""
        address = f"{self.own}/{PREFIX[self.version]}"
        self.netns.sh(f"ip addr replace {address} dev br-phy {nodad}; ip link set br-phy up", self.space)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        db = await Ovsdb.connect(self.switch.socket)
        ports = PortSink(db, BRIDGE, Ofctl(self.switch.directory / f"{BRIDGE}.mgmt"), {})
        await ovsdb_write.ensure_port(db, BRIDGE, tunnel_port(CONFIG))
        neighbours = TunnelNeighbourSink(self.switch.directory)
        await neighbours.apply([TunnelNeighbour("br-phy", self.other)], ())
        engine = Engine(self.facts, UNITS, {Port: ports})
        work = [neighbours.run(), BfdFeed(db, self._see).run(self.facts), engine.run()]
        tasks = [asyncio.create_task(one) for one in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await db.close()

    def _see(self, node: str, up: bool | None, *, unsure: bool = False) -> None:
        assert up is None or not unsure
        assert node == next(name for name in NAMES if name != self.name)
        self.seen = up
        self.words.append(up)


@pytest.fixture
def nodes(request: pytest.FixtureRequest, netns: Namespaces) -> Iterator[tuple[Node, Node]]:
    space = netns.make()
    netns.sh(f"ip link add eth1 type veth peer name eth1 netns {space}; ip link set eth1 up")
    netns.sh("ip link set eth1 up", space)
    places = dict(zip(NAMES, (netns.home, space), strict=True))
    both = [Node(netns, place, name, request.param) for name, place in places.items()]
    try:
        for node in both:
            node.start()
        yield both[0], both[1]
    finally:
        for node in both:
            node.switch.stop()


async def wait(node: Node, seen: bool | None, seconds: float = 30) -> None:
    await asyncio.to_thread(until, lambda: node.seen is seen, f"{seen} on {node.name}", seconds)


def count(node: Node, port: str) -> int:
    """Echo requests that came out of this tunnel."""
    shown = node.switch.ofctl("dump-flows", BRIDGE, f"in_port={port},icmp")
    return int(re.findall(r"n_packets=(\d+)", shown)[0])


@pytest.mark.parametrize("nodes", [4], indirect=True, ids=["ipv4"])
async def test_a_switch_that_is_gone_is_noticed_fast_and_so_is_its_return(nodes: tuple[Node, Node]) -> None:
    one, other = nodes
    for node in nodes:
        node.facts.put(wide_pool("all", ()))
    async with one.running():
        async with other.running():
            await wait(one, True)
            await wait(other, True)

        gone = time.monotonic()
        other.switch.kill("ovs-vswitchd")
        await wait(one, False)
        print(f"noticed after {time.monotonic() - gone:.2f} s")

        other.switch.start_switch()
        await asyncio.to_thread(
            until, lambda: other.netns.run("ip link show br-phy", other.space).returncode == 0, "br-phy"
        )
        other.address()
        async with other.running():
            await wait(one, True)


@pytest.mark.parametrize("nodes", [4], indirect=True, ids=["ipv4"])
async def test_a_switch_that_is_heard_again_is_not_down_while_its_session_comes_up(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bfd_feed, "ASIDE_SECONDS", 60.0)  # however long this machine takes to let it go on
    monkeypatch.setattr(bfd_feed, "DOUBT_SECONDS", 60.0)
    one, other = nodes
    for node in nodes:
        node.facts.put(wide_pool("all", ()))
    async with one.running(), other.running():
        await wait(one, True)
        one.words.clear()
        daemon = other.switch.pid("ovs-vswitchd")
        os.kill(daemon, signal.SIGSTOP)
        try:
            await wait(one, False)
        finally:
            os.kill(daemon, signal.SIGCONT)
        await wait(one, True)
    assert (one.words[:2], one.words[-1]) == ([False, None], True)


@pytest.mark.parametrize("nodes", [6], indirect=True, ids=["ipv6"])
async def test_tunnels_of_bfd_take_no_packet_of_pods_and_go_with_the_pool(nodes: tuple[Node, Node]) -> None:
    one, other = nodes
    async with one.running(), other.running():
        for node in nodes:
            node.facts.put(wide_pool("all", ()))
        await wait(one, True)
        (watching,) = other.switch.ports(BRIDGE) - {TUNNEL_PORT}
        for port in (TUNNEL_PORT, watching):
            other.switch.ofctl("add-flow", BRIDGE, f"table=0,in_port={port},icmp actions=drop")
        end = f"set_field:{one.other}->tun_{'ipv6_' if one.version == 6 else ''}dst"
        packet = "ffffffffffff0a000000000108004500001c00000000400166d30a0a00070a0a01070800f7ff00000000"
        words = f"in_port=LOCAL packet={packet} actions={end},output:{TUNNEL_PORT}"

        def arrived() -> bool:
            """One may be lost while links of these new nodes change (docs/datapaths.md)."""
            one.switch.ofctl("packet-out", BRIDGE, words)
            return count(other, TUNNEL_PORT) >= 5

        await asyncio.to_thread(until, arrived, "five packets at the port of Pods")
        assert count(other, watching) == 0
        one.facts.drop(PoolSelector, "all")
        await asyncio.to_thread(until, lambda: one.switch.ports(BRIDGE) == {TUNNEL_PORT}, "no port of BFD")
        await wait(one, None)
