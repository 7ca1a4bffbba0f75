"""Faults of sessions with a router of FRR: a link that flaps, an identifier that the router has, an interface that is not ready."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from bgp_node import ENGINE, NODE, NODE_AS, ROUTER, ROUTER_IPS, BgpNode, Network, Room, capabilities, until
from test_host_bgp import BFD, VIPS, bgp_policy, established, router, service

from antrea.features.bgp_policy.report import bgp_peers_down
from antrea.features.bgp_policy.router_id import NodeRouterId

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces

FLAPS = 5


async def test_a_link_that_flaps_has_its_routes_again_soon_after_it_stands(
    frr_root: Path, netns: Namespaces
) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=router(bfd=True)),
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy(bfd=BFD))
        node.facts.put(service())
        async with node.running():
            await until(lambda: all("via" in network.routes(vip) for vip in VIPS), "the routes")
            before = [engine.process(name) for name in ("bgpd", "bfdd", "zebra")]
            for _ in range(FLAPS):
                network.cut()
                await until(lambda: not network.routes(VIPS[0]), "the route to go")
                network.mend()
                await asyncio.sleep(0.3)  # less than a session takes
            began = time.monotonic()
            await until(lambda: all("via" in network.routes(vip) for vip in VIPS), "the routes again", 60)
            print(f"routes {time.monotonic() - began:.1f} s after the last of {FLAPS} cuts")
            await until(lambda: established(node), "the state")
            assert [engine.process(name) for name in ("bgpd", "bfdd", "zebra")] == before


async def test_the_identifier_of_the_router_is_refused_by_name_until_the_node_has_another(
    frr_root: Path, netns: Namespaces
) -> None:
    network = Network(netns)
    with (
        # speakers of one AS alone: others may share an identifier (RFC 6286)
        Room(ROUTER, space=network.router, configuration=router(local_as=NODE_AS)),
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy(asn=NODE_AS))
        node.facts.put(NodeRouterId(NODE.name, ROUTER_IPS[0]))
        async with node.running():
            await until(lambda: "Bad BGP Identifier" in bgp_peers_down(node.facts), "the reason", 30)
            node.facts.put(NodeRouterId(NODE.name, "10.7.0.1"))
            await until(lambda: established(node), "the sessions", 60)


async def test_sessions_begin_soon_after_an_interface_has_its_link_local_address(
    frr_root: Path, netns: Namespaces
) -> None:
    network = Network(netns)
    # duplicate address detection of the kernel's default takes a second or two, in which bgpd cannot connect by IPv6
    netns.sh("sysctl -qw net.ipv6.conf.eth0.accept_dad=1 net.ipv6.conf.eth0.dad_transmits=6")
    netns.sh("ip link set eth0 down; ip link set eth0 up")
    netns.sh("ip addr replace fd07::1/64 dev eth0 nodad")
    with (
        Room(ROUTER, space=network.router, configuration=router()),
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy())
        async with node.running():
            await until(
                lambda: "tentative" not in netns.sh("ip -6 address show dev eth0 scope link"), "the address"
            )
            began = time.monotonic()
            await until(lambda: established(node), "the sessions", 60)
            print(f"sessions {time.monotonic() - began:.1f} s after the address")
            assert time.monotonic() - began < 12
