"""BGP with a router of FRR: what is advertised, withdrawn and kept, and what breaks a session."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from bgp_node import (
    ENGINE,
    NODE,
    NODE_AS,
    NODE_IPS,
    ROUTER,
    ROUTER_AS,
    ROUTER_IPS,
    BgpNode,
    Network,
    Room,
    capabilities,
    policy,
    until,
)

from antrea.facts.egress import Egress
from antrea.facts.node import LocalAddress
from antrea.facts.service import Service, ServiceEndpoint
from antrea.features.bgp_policy.password import SECRET, PasswordSecret, PeerPassword, password_rows, peer_key
from antrea.features.bgp_policy.policy import BgpPolicyRow
from antrea.features.bgp_policy.report import bgp_peers_down, unusable_peers
from antrea.features.bgp_policy.state import ESTABLISHED, BgpPeerState, FrrState
from antrea.features.bgp_policy.view import shown_peers, shown_policy, shown_routes
from antrea.host.bgp import BgpPrefix
from antrea.outside.frr.vty import VtySocket

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Namespaces

    from antrea.apis.crd.bgp import BGPPolicy

VIPS = ("203.0.113.5", "2001:db8:113::5")
EGRESS_IP = "203.0.113.77"
BFD = {"enabled": True, "transmitIntervalMilliseconds": 100, "receiveIntervalMilliseconds": 100}


ALL_FIELDS: dict[str, Any] = {
    "holdTimeSeconds": 9,
    "keepaliveIntervalSeconds": 3,
    "multihopTTL": 3,
    "bfd": BFD,
    "communities": [
        "64512:200",
        "64512:100",
        "65535:65281",
        "65535:0",
        "65535:666",
        "65535:65282",
        "65535:65283",
    ],
    "localPreference": 200,
}


def router(
    *, password: str = "", more: str = "", local_as: int = ROUTER_AS, bfd: bool = False, hops: int = 1
) -> str:
    """Configuration of a router that takes all routes of the Node."""
    lines = "".join(
        f" neighbor {ip} remote-as {NODE_AS}\n neighbor {ip} timers connect 1\n"
        + (f" neighbor {ip} password {password}\n" if password else "")
        + (f" neighbor {ip} ebgp-multihop {hops}\n" if hops > 1 else "")
        + (f" neighbor {ip} bfd profile fast\n" if bfd else "")
        for ip in NODE_IPS
    )
    return (
        "bfd\n profile fast\n  receive-interval 100\n  transmit-interval 100\n exit\nexit\n"
        f"router bgp {local_as}\n bgp router-id {ROUTER_IPS[0]}\n no bgp ebgp-requires-policy\n"
        f" no bgp default ipv4-unicast\n no bgp network import-check\n{lines}"
        f" address-family ipv4 unicast\n  network 198.51.100.0/24\n  neighbor {NODE_IPS[0]} activate\n{more} exit-address-family\n"
        f" address-family ipv6 unicast\n  neighbor {NODE_IPS[1]} activate\n exit-address-family\nexit\n"
    )


def bgp_policy(*, port: int = 179, **peer: object) -> BGPPolicy:
    peers = [{"address": ip, "asn": ROUTER_AS, "connectRetrySeconds": 1, **peer} for ip in ROUTER_IPS]
    return policy(
        listenPort=port,
        advertisements={"service": {"ipTypes": ["LoadBalancerIP"]}, "pod": {}, "egress": {}},
        bgpPeers=peers,
    )


def service(name: str = "web", ips: tuple[str, ...] = VIPS, *, local: bool = False) -> Service:
    return Service(
        "default", name, ("10.96.0.1", *ips), (("TCP", 80),), ips, ("http",),
        external_local=local, load_balancer_ips=ips,
    )  # fmt: skip


def endpoint(node: str, *, ready: bool = True) -> ServiceEndpoint:
    return ServiceEndpoint(
        "default/web-x", "default/web", "http", "TCP", f"10.10.0.{5 if node == NODE.name else 6}", 80, node,
        ready=ready, serving=True, terminating=not ready,
    )  # fmt: skip


def established(node: BgpNode) -> bool:
    return [row.state for row in node.facts.all(BgpPeerState)] == [ESTABLISHED] * 2


async def test_service_pod_and_egress_addresses_are_advertised_where_they_are_served(
    frr_root: Path, netns: Namespaces
) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=router()),
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy())
        node.facts.put(service(local=True))
        async with node.running():
            await until(lambda: established(node), "the sessions")
            for cidr in NODE.pod_cidrs:
                await until(lambda cidr=cidr: "via" in network.routes(cidr), f"route to {cidr}")
            assert not any(network.routes(vip) for vip in VIPS)
            node.facts.put(endpoint(NODE.name))
            for vip in VIPS:
                await until(lambda vip=vip: "via" in network.routes(vip), f"route to {vip}")
            # a draining Endpoint serves as long as it is the only one
            node.facts.put(endpoint(NODE.name, ready=False))
            await asyncio.sleep(0.5)
            assert all("via" in network.routes(vip) for vip in VIPS)
            node.facts.put(endpoint("n2"))
            await until(lambda: not any(network.routes(vip) for vip in VIPS), "withdrawal")
            node.facts.put(Egress("web", "u", EGRESS_IP))
            node.facts.put(LocalAddress(EGRESS_IP, "antrea-egress0"))
            await until(lambda: "via" in network.routes(EGRESS_IP), "route to the Egress IP")
            node.facts.drop(LocalAddress, EGRESS_IP)
            await until(lambda: not network.routes(EGRESS_IP), "withdrawal of the Egress IP")
            # nothing of the router is taken
            assert "198.51.100.0" not in netns.sh("ip route show table all")
            assert node.facts.get(FrrState) == FrrState()
            assert shown_policy(node.facts) == {
                "name": "p", "routerID": NODE_IPS[0], "localASN": NODE_AS, "listenPort": 179,
            }  # fmt: skip
            assert shown_routes(node.facts, {"ipv4-only": ""}) == [
                {"route": "10.10.0.0/24", "type": "NodeIPAMPodCIDR"}
            ]
            assert shown_peers(node.facts, {"ipv6-only": ""}) == [
                {"peer": f"[{ROUTER_IPS[1]}]:179", "asn": ROUTER_AS, "state": ESTABLISHED}
            ]
            node.facts.drop(BgpPolicyRow, "p")
            await until(lambda: not network.routes(NODE.pod_cidrs[0]), "withdrawal with the policy")
            await until(lambda: not engine.process("bgpd"), "bgpd to end")


async def test_an_agent_that_is_replaced_withdraws_nothing_and_sends_no_command(
    frr_root: Path, netns: Namespaces
) -> None:
    network = Network(netns)
    with (
        # a session that BFD watches begins once the router answers to BFD
        Room(ROUTER, space=network.router, configuration=router(bfd=True, hops=3)) as far,
        Room(ENGINE, capabilities()) as engine,
    ):
        first = BgpNode(engine.folder)
        first.put(bgp_policy(**ALL_FIELDS))
        first.facts.put(service())
        async with first.running():
            await until(lambda: all("via" in network.routes(vip) for vip in VIPS), "routes")
        vty = await VtySocket.connect(far.folder / "bgpd.vty")
        (path,) = (await vty.json(f"show bgp ipv4 unicast {VIPS[0]}/32 json"))["paths"]
        assert {"64512:100", "64512:200", "no-export"} <= set(path["community"]["string"].split())
        await vty.close()
        with network.watched_routes() as seen:
            after = BgpNode(engine.folder)
            async with after.running(listed=False):
                after.put(bgp_policy(**ALL_FIELDS))
                await asyncio.sleep(1)
                after.facts.put(service())
                after.listed()
                await until(lambda: established(after), "state of the sessions")
                await asyncio.sleep(1)
                assert seen == []
                assert after.control.commands == 0
                # one that lacks an address withdraws it once all lists are complete
                after.facts.drop(Service, "default/web")
                await until(lambda: not any(network.routes(vip) for vip in VIPS), "withdrawal")


async def test_a_password_is_used_and_changed_without_a_restart(frr_root: Path, netns: Namespaces) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=router(password="s3cret!")),
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy())
        node.facts.replace(PeerPassword, passwords("wrong"))
        async with node.running():
            await until(lambda: node.facts.all(BgpPeerState), "state")
            await asyncio.sleep(2)
            assert not established(node)
            assert "BGP session with 10.7.0.9 is" in bgp_peers_down(node.facts)
            node.facts.replace(PeerPassword, passwords("s3cret!"))
            await until(lambda: established(node), "sessions", 60)
            # what cannot be given to FRR ends the sessions: none is without a password that should have one
            node.facts.replace(PeerPassword, passwords("a\nexit"))
            await until(lambda: "its password in Secret" in unusable_peers(node.facts), "the finding")
            await until(lambda: not network.routes(NODE.pod_cidrs[0]), "end of the sessions")


def passwords(text: str) -> tuple[PeerPassword, ...]:
    value = base64.b64encode(text.encode()).decode()
    data = {peer_key(ip, ROUTER_AS): value for ip in ROUTER_IPS}
    return password_rows(msgspec.convert({"metadata": {"name": SECRET}, "data": data}, PasswordSecret))


async def test_a_dead_node_loses_its_routes_in_less_than_a_second_with_bfd(
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
            await until(lambda: "via" in network.routes(VIPS[0]), "the route")
            await until(lambda: all(row.get("bfd") == "Up" for row in shown_peers(node.facts)), "BFD")
            with network.watched_routes() as seen:
                began = time.monotonic()
                network.cut()
                await until(lambda: not network.routes(VIPS[0]), "the route to go")
            gone = [when - began for when, line in seen if line.startswith("Deleted") and VIPS[0] in line]
            print(f"route gone {1000 * gone[0]:.0f} ms after the cut")
            assert gone[0] < 1
            network.mend()
            await until(lambda: "via" in network.routes(VIPS[0]), "the route again", 60)


async def test_bgpd_that_is_killed_keeps_its_routes_at_the_router(frr_root: Path, netns: Namespaces) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=router()),
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy())
        node.facts.put(service())
        async with node.running():
            await until(lambda: all("via" in network.routes(vip) for vip in VIPS), "the routes")
            await until(lambda: established(node), "sessions")
            before = engine.process("bgpd")
            with network.watched_routes() as seen:
                os.kill(before, signal.SIGKILL)
                await until(lambda: engine.process("bgpd") not in (0, before), "the next bgpd")
                await until(lambda: not established(node), "the end of the sessions")
                await until(lambda: established(node), "sessions of the next bgpd", 60)
                await asyncio.sleep(2)
            assert not [line for _, line in seen if line.startswith("Deleted")]


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"local_as": 64999}, "Bad Peer AS"),
        ({"more": f"  neighbor {NODE_IPS[0]} maximum-prefix 1\n"}, "Maximum Number of Prefixes Reached"),
    ],
)
async def test_the_reason_of_a_session_that_is_down_is_named(
    frr_root: Path, netns: Namespaces, own: dict[str, object], why: str
) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=router(**own)),  # type: ignore[arg-type]
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy())
        node.facts.put(service())
        async with node.running():
            await until(lambda: why in bgp_peers_down(node.facts), "the reason")


async def test_a_port_of_another_program_is_named_and_bfd_goes_on(frr_root: Path, netns: Namespaces) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=router(bfd=True)),
        Room(ENGINE, capabilities()) as engine,
        socket.create_server(("0.0.0.0", 179)),
        socket.create_server(("::", 179), family=socket.AF_INET6),
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy(bfd=BFD))
        async with node.running():
            await until(lambda: "listens at TCP port 179" in why_not(node), "the finding")
            await until((engine.folder / "bfdd.vty").exists, "bfdd")
            await asyncio.sleep(1)  # the agent is connected to it
            # what is withdrawn meanwhile does not wait for bgpd: its flows go without delay
            began = time.monotonic()
            await node.control.apply([], [BgpPrefix("203.0.113.9/32")])
            assert time.monotonic() - began < 2
            node.put(bgp_policy(port=1790, bfd=BFD))
            await until(lambda: why_not(node) == "", "the other port", 60)


async def test_routes_of_another_program_on_the_node_stay_as_they_are(
    frr_root: Path, netns: Namespaces
) -> None:
    network = Network(netns)
    netns.sh("ip link add other type veth peer name far; ip link set other up; ip link set far up")
    for number, protocol in enumerate(("bgp", "zebra", "196")):
        netns.sh(f"ip route add 192.0.{number}.0/24 dev other proto {protocol}")
        netns.sh(f"ip route add 2001:db8:{number}::/64 dev other proto {protocol}")
    before = netns.sh("ip route; ip -6 route; ip nexthop")
    with (
        Room(ROUTER, space=network.router, configuration=router()),
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy())
        async with node.running():
            await until(lambda: established(node), "the sessions")
            await asyncio.sleep(1)
            assert netns.sh("ip route; ip -6 route; ip nexthop") == before
            node.facts.drop(BgpPolicyRow, "p")
            await until(lambda: not engine.process("zebra"), "FRR to end")
            assert netns.sh("ip route; ip -6 route; ip nexthop") == before


def why_not(node: BgpNode) -> str:
    state = node.facts.get(FrrState)
    return state.why_not if state else ""


async def test_a_thousand_addresses_are_at_the_router_in_seconds(frr_root: Path, netns: Namespaces) -> None:
    network = Network(netns)
    with (
        Room(ROUTER, space=network.router, configuration=router()),
        Room(ENGINE, capabilities()) as engine,
    ):
        node = BgpNode(engine.folder)
        node.put(bgp_policy())
        async with node.running():
            await until(lambda: established(node), "sessions")
            await until(lambda: "via" in network.routes(NODE.pod_cidrs[0]), "route")
            began = time.monotonic()
            for number in range(1000):
                ip = f"203.1.{number // 250}.{number % 250}"
                node.facts.put(service(f"web-{number}", (ip,)))
            await until(lambda: network.routes("root 203.1.0.0/16").count("via") == 1000, "all routes")
            print(f"1000 addresses in {time.monotonic() - began:.2f} s")
