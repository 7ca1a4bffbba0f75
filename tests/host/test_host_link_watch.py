"""An interface of the Node that is taken down and brought up again: what the kernel dropped meanwhile is there again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from egress_node import Node
from netdev_switch import until

from antrea.facts.member import AgentNode
from antrea.outside.netlink.link_watch import LinkWatch
from antrea.outside.nftables.watch import NftWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

GATEWAY = "antrea-gw0"
PEER = AgentNode(
    "n2",
    ("192.0.2.2", "2001:db8:2::2"),
    ("192.0.2.2",),
    pod_cidrs=("10.10.1.0/24", "fd00:10:1::/64"),
)


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as there:
        yield there


def on(node: Node, dev: str) -> set[str]:
    """Routes and addresses of an interface, but those that the kernel makes by itself."""
    words = ("route", "-6 route", "addr")
    routes4, routes6, (link, *_) = (json.loads(node.netns.sh(f"ip -j {one} show dev {dev}")) for one in words)
    routes = {f"{row['dst']} {row.get('gateway', '')}" for row in routes4 + routes6}
    addresses = {row["local"] for row in link["addr_info"]}
    return {one for one in routes | addresses if not one.startswith(("fe80", "ff00", "multicast"))}


async def test_an_interface_that_was_down_has_its_routes_and_addresses_again(node: Node) -> None:
    async with node.agent():
        node.facts.put(PEER)
        await node.engine.quiet()
        before = on(node, GATEWAY)
        assert {"10.10.1.0/24 10.10.1.1", "10.10.0.1", "fd00:10::1"} <= before
        watch = LinkWatch(GATEWAY.__eq__, lambda: node.engine.resync(node.netlink))
        task = asyncio.create_task(watch.run())
        await watch.listening.wait()
        node.netns.sh(f"ip link set {GATEWAY} down")
        assert on(node, GATEWAY).isdisjoint({"10.10.1.0/24 10.10.1.1", "fd00:10::1"})
        node.netns.sh(f"ip link set {GATEWAY} up")
        await asyncio.to_thread(until, lambda: on(node, GATEWAY) == before, "what was there")
        task.cancel()


async def test_a_watch_that_runs_again_restores_what_it_missed(netns: Namespaces) -> None:
    seen: list[str] = []
    for watch in (
        LinkWatch(lambda _: True, lambda: seen.append("link")),
        NftWatch(lambda: seen.append("nft")),
    ):
        for _ in range(2):
            task = asyncio.create_task(watch.run())
            await watch.listening.wait()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert seen == ["link", "nft"]


async def test_only_an_interface_of_ours_that_was_up_and_then_down_comes_back(netns: Namespaces) -> None:
    seen: list[int] = []
    news = asyncio.Event()

    def came_back() -> None:
        seen.append(len(seen))
        news.set()

    watch = LinkWatch(lambda name: name.startswith("our"), came_back)
    task = asyncio.create_task(watch.run())
    await watch.listening.wait()
    # a new one that is brought up for the first time, and one of somebody else
    netns.sh("ip link add our0 type bridge; ip link set our0 up; ip link add other0 type bridge")
    netns.sh("ip link set other0 up; ip link set other0 down; ip link set other0 up")
    # one of the same name that is made anew
    netns.sh("ip link del our0; ip link add our0 type bridge; ip link set our0 up")
    netns.sh("ip link add our1 type veth peer name other1; ip link set our1 up; ip link set our1 master our0")
    netns.sh("ip link set our1 down; ip link set our1 nomaster; ip link set our1 up")
    await asyncio.wait_for(news.wait(), 60)
    assert seen == [0]
    task.cancel()
