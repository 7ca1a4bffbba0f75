"""A router with static routes that hang on BFD learns of a dead Node, and of one that is drained, without BGP."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from bgp_node import (
    ENGINE,
    NODE_IPS,
    ROUTER,
    ROUTER_IPS,
    BgpNode,
    Network,
    Room,
    capabilities,
    cluster_node,
    policy,
    until,
)

from antrea.features.bgp_policy.policy import BgpPolicyRow
from antrea.features.bgp_policy.report import bfd_peers_down
from antrea.features.bgp_policy.state import BfdPeerState, FrrState

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces

VIPS = ("10.99.0.1", "fd99::1")
FAST = {"transmitIntervalMilliseconds": 100, "receiveIntervalMilliseconds": 100}
POLICY = policy(bfdPeers=[{"address": address, **FAST} for address in ROUTER_IPS])
STATIC = f"""
bfd
 profile fast
  receive-interval 100
  transmit-interval 100
exit
ip route {VIPS[0]}/32 {NODE_IPS[0]} bfd profile fast
ipv6 route {VIPS[1]}/128 {NODE_IPS[1]} bfd profile fast
"""


def is_routed(network: Network) -> bool:
    """Whether the router reaches both addresses by the Node."""
    return all("via" in network.routes(vip) for vip in VIPS)


def is_unrouted(network: Network) -> bool:
    return not any(network.routes(vip) for vip in VIPS)


async def test_a_router_without_bgp_learns_of_a_dead_node_in_less_than_a_second(
    frr_root: Path, netns: Namespaces
) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=STATIC),
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(POLICY)
        async with node.running():
            await until(lambda: is_routed(network), "the routes")
            await until(
                lambda: [row.up for row in node.facts.all(BfdPeerState)] == [True] * 2, "both sessions"
            )
            assert node.facts.get(FrrState) == FrrState()
            assert engine.process("bgpd") == 0
            with network.watched_routes() as seen:
                began = time.monotonic()
                network.cut()
                await until(lambda: is_unrouted(network), "the routes to go")
            gone = [when - began for when, line in seen if line.startswith("Deleted") and VIPS[0] in line]
            print(f"route gone {1000 * gone[0]:.0f} ms after the cut")
            assert gone[0] < 1
            await until(
                lambda: f"BFD session with {ROUTER_IPS[0]} is down" in bfd_peers_down(node.facts), "report"
            )
            network.mend()
            await until(lambda: is_routed(network), "the routes again")


async def test_a_drained_node_says_so_by_bfd_unless_it_is_the_last(frr_root: Path, netns: Namespaces) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=STATIC),
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(POLICY)
        async with node.running():
            await until(lambda: is_routed(network), "the routes")
            node.facts.put(cluster_node("n2"))
            node.facts.put(cluster_node("n1", cordoned=True))
            await until(lambda: is_unrouted(network), "the routes of a drained Node to go")
            assert bfd_peers_down(node.facts) == ""
            node.facts.put(cluster_node("n2", cordoned=True))
            await until(lambda: is_routed(network), "the routes by the last Node")


async def test_sessions_outlive_the_agent_and_end_with_the_policy(frr_root: Path, netns: Namespaces) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=STATIC),
        Room(ENGINE, capabilities()) as engine,
    ):
        first = BgpNode(engine.folder)
        first.put(POLICY)
        async with first.running():
            await until(lambda: is_routed(network), "the routes")
        with network.watched_routes() as seen:
            after = BgpNode(engine.folder)
            # as an agent that starts: the list of policies comes last
            async with after.running(listed=False):
                await asyncio.sleep(1)
                after.put(POLICY)
                after.listed()
                await until(
                    lambda: [row.up for row in after.facts.all(BfdPeerState)] == [True] * 2, "the state"
                )
                assert is_routed(network)
                assert seen == []
                after.facts.drop(BgpPolicyRow, "p")
                await until(lambda: is_unrouted(network), "the routes to go with the policy")
                await until(lambda: not engine.process("zebra") and not engine.process("bfdd"), "FRR to end")
