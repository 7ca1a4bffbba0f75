"""Routes that a Node takes from a router: those of its filter alone, at most as many as it says, for as long as the session is up."""

from __future__ import annotations

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
    until,
)
from test_host_bgp import BFD, VIPS, bgp_policy, established, router, service

from antrea.facts.node import LocalAddress
from antrea.features.bgp_policy.network import PoolNetworks
from antrea.features.bgp_policy.report import bgp_peers_down, settings_without_effect
from antrea.outside.frr.vty import VtySocket

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces

MORE = "".join(
    f"  network {network}\n"
    for network in ("192.0.2.0/24", "198.51.101.0/24", "10.7.0.64/26", "10.10.9.0/24")
)
DEFAULTS = f"  neighbor {NODE_IPS[0]} default-originate\n"
IMPORTS = {
    "networks": ["198.51.0.0/16", "10.7.0.0/16", "2001:db8::/32"],
    "defaultRoute": True,
    "maximumRoutes": 4,
}
METRIC = "metric 20"


def taken(netns: Namespaces, to: str) -> bool:
    return f"via {ROUTER_IPS[0]}" in (route := netns.sh(f"ip route show {to}")) and METRIC in route


async def ask(folder: Path, *commands: str) -> None:
    """Configure the router."""
    vty = await VtySocket.connect(folder / "bgpd.vty")
    for command in ("configure terminal", *commands, "end"):
        assert (await vty.run(command)).why_not == "", command
    await vty.close()


async def test_routes_of_the_filter_are_taken_and_go_with_the_session(
    frr_root: Path, netns: Namespaces
) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=router(more=MORE + DEFAULTS, bfd=True)) as far,
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy(bfd=BFD, importedRoutes=IMPORTS))
        node.facts.put(LocalAddress(NODE_IPS[0], "eth0", 24))
        async with node.running():
            await until(lambda: established(node), "the sessions")
            await until(lambda: taken(netns, "198.51.100.0/24"), "a route")
            await until(lambda: taken(netns, "default"), "the default route")
            assert netns.sh("ip route show 192.0.2.0/24") == ""
            # one that would lead to other Nodes is not installed, and named
            assert netns.sh("ip route show 10.7.0.64/26") == ""
            await until(
                lambda: "10.7.0.64/26 is within 10.7.0.0/24" in settings_without_effect(node.facts), "finding"
            )

            # a default route that is withdrawn goes, and the others stay
            place = ("router bgp 64513", "address-family ipv4 unicast")
            await ask(far.folder, *place, f"no neighbor {NODE_IPS[0]} default-originate")
            await until(lambda: netns.sh("ip route show default") == "", "the default route to go")
            assert taken(netns, "198.51.101.0/24")

            network.cut()
            await until(lambda: netns.sh("ip route show proto 74") == "", "the routes to go")
            network.mend()
            await until(lambda: taken(netns, "198.51.100.0/24"), "the route again", 60)

        # an agent that restarts keeps them, and takes those away that the router withdrew meanwhile
        await ask(far.folder, *place, "no network 198.51.101.0/24")
        after = BgpNode(engine.folder)
        after.put(bgp_policy(bfd=BFD, importedRoutes=IMPORTS))
        after.facts.put(LocalAddress(NODE_IPS[0], "eth0", 24))
        async with after.running():
            await until(lambda: netns.sh("ip route show 198.51.101.0/24") == "", "the withdrawn route to go")
            assert taken(netns, "198.51.100.0/24")
            # with too many routes the session ends, and says so
            more = [f"network 198.51.{number}.0/24" for number in range(110, 115)]
            await ask(far.folder, *place, *more)
            await until(lambda: "Maximum Number of Prefixes" in bgp_peers_down(after.facts), "the reason")
            await until(lambda: netns.sh("ip route show proto 74") == "", "the routes to go with it")
            # without the field nothing is taken
            after.put(bgp_policy(bfd=BFD))
            await until(lambda: established(after), "the sessions again", 60)
            assert netns.sh("ip route show proto 74") == ""


async def test_a_router_is_sent_the_networks_that_its_peer_names(frr_root: Path, netns: Namespaces) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=router()),
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy(advertisedNetworks=["203.0.113.0/25", "2001:db8:113::/64"]))
        node.facts.put(service())
        node.facts.put(service("far", ("203.0.113.200",)))
        async with node.running():
            await until(lambda: established(node), "the sessions")
            for vip in VIPS:
                await until(lambda vip=vip: "via" in network.routes(vip), f"route to {vip}")
            assert network.routes("203.0.113.200") == ""
            assert network.routes("10.10.0.0/24") == ""
            before = engine.process("bgpd")
            # of a pool that does not exist nothing is sent
            node.put(bgp_policy(externalIPPools=["none"]))
            await until(lambda: not network.routes(VIPS[0]), "withdrawal")
            assert "ExternalIPPool 'none' does not exist" in settings_without_effect(node.facts)
            node.facts.put(PoolNetworks("none", ("203.0.113.200/32",)))
            await until(lambda: "via" in network.routes("203.0.113.200"), "the address of the pool")
            assert network.routes(VIPS[0]) == ""
            assert established(node)
            assert engine.process("bgpd") == before
