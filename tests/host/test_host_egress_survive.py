"""Connections of Pods with blocks of ports go on through the next gateway when theirs is gone, whichever end sends first."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from functools import partial
from typing import TYPE_CHECKING

import pytest
from egress_node import EGRESS, FAMILIES, FAR, GATEWAYS, OUTSIDE, PODS, Node, link
from held_connection import CLIENT, SERVER, clients, results
from raw_segment import ACK, FIN, PORT, RST, SERVED, SYN, Segment, carried, heard, raw
from tunnel_frame import frame, segment
from wide_pool import wide_pool

from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressOwner, EgressPod, EgressPortBlock, UnusedAddress
from antrea.facts.node import LocalAddress, ThisNode
from antrea.features.egress.agent.feature import FEATURE
from antrea.features.egress.port_block import OTHER_PORTS
from antrea.features.external_ip_pool.agent_part.idle_detector import IdleFeed
from antrea.host.carrier import ip_mac
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet
from antrea.host.pod_sysctl import PodSysctl
from antrea.outside.netlink.netns import NetnsWorker
from antrea.outside.netlink.pod_sysctl_sink import PodSysctlSink
from antrea.outside.nftables import text as nft_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Namespaces

PLAIN = {4: "10.10.0.8", 6: "fd00:10::8"}
BLOCKS = {"web": (1024, 1535), "plain": (60928, 61439)}
OF_EACH = 6
VLAN = {4: ("172.16.181.40", 24), 6: ("fd00:181::40", 64)}
FAR_PODS = {4: "10.10.1.9", 6: "fd00:10:1::9"}


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as there, there.serving(there.outside, SERVER):
        there.plug_tunnel()
        yield there


@pytest.fixture
def vlan(netns: Namespaces) -> Iterator[Node]:
    """A Node with a VLAN and another Node, of which the test is the end of the tunnel."""
    with Node(netns).standing() as there:
        there.plug_tunnel()
        there.plug_vlan(181)
        # the kernel of the other end does not know the connection
        silence = "add chain inet t out { type filter hook output priority 0; }; add rule inet t out tcp flags rst drop"
        there.netns.sh(f"nft 'add table inet t; {silence}'", there.router)
        yield there


def blocks(version: int) -> list[EgressPortBlock]:
    ips = {"web": PODS[version], "plain": PLAIN[version]}
    return [EgressPortBlock("e", f"shop/{pod}", *BLOCKS[pod], (ips[pod],)) for pod in BLOCKS]


def first_gateway(node: Node, version: int) -> None:
    """In the namespace that the tunnel leads to: the kernel with the rules of the product, and a cable of its own to outside."""
    sh, there, ip = node.netns.sh, node.peer, EGRESS[version]
    sh(f"ip link add out type veth peer name eth1 netns {node.outside}; ip link set out up", there)
    sh("ip link set eth1 up; ethtool -K eth1 tx off", node.outside)
    sh(
        "ip link set eth0 address aa:bb:cc:dd:ee:ff; sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
        there,
    )
    sh("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0", there)
    gateway = "02:00:00:00:00:aa"
    host = "/32" if version == 4 else "/128"
    no = "" if version == 4 else " nodad"
    sh(f"ip addr add {ip}{host} dev out{no}; ip route add {OUTSIDE[version]}{host} dev out", there)
    # with its second card the host outside reaches the address by this gateway alone, at first
    sh(f"ip route add {ip}{host} dev eth1", node.outside)
    mac = json.loads(sh("ip -j link show eth1", node.outside))[0]["address"]
    sh(f"ip neigh add {OUTSIDE[version]} lladdr {mac} dev out nud permanent", there)
    for pod in (PODS[version], PLAIN[version]):
        sh(
            f"ip route add {pod}{host} dev eth0; ip neigh add {pod} lladdr {gateway} dev eth0 nud permanent",
            there,
        )
    lines = "\n".join(
        [
            *rules(version),
            "add table inet t",
            "add chain inet t m { type filter hook prerouting priority mangle; }",
        ]
    )
    sh(f"nft -f - <<'N'\n{lines}\nadd rule inet t m iifname eth0 meta mark set 1\nN", there)


def rules(version: int) -> list[str]:
    """What the agent of that gateway has in nftables."""
    facts, ip = Facts(), EGRESS[version]
    config = AgentConfig(host_gateway="eth0")
    me = ThisNode("n2", ("10.10.1.0/24", "fd00:10:1::/64"), ("192.0.2.2",), ("192.0.2.2",))
    for row in (config, me, LocalAddress(ip, "out"), Egress("e", "u", ip, survives=True), *blocks(version)):
        facts.put(row)
    engine = Engine(facts, FEATURE.units)
    engine.plan()
    entries = list(engine.standing().values())
    text = ["add table inet antrea"]
    text.append(
        "add chain inet antrea postrouting { type nat hook postrouting priority srcnat; policy accept; }"
    )
    text.append("add chain inet antrea forward { type filter hook forward priority filter; policy accept; }")
    for kind in (NftChain, NftSet, NftElement):
        text += [nft_text.add(entry) for entry in entries if isinstance(entry, kind)]
    ordered = sorted((entry for entry in entries if isinstance(entry, NftRule)), key=lambda rule: rule.order)
    return text + [nft_text.add(rule) for rule in ordered]


@pytest.mark.parametrize("version", [4, 6])
async def test_connections_go_on_through_the_next_gateway(node: Node, version: int) -> None:
    ip, sh = EGRESS[version], node.netns.sh
    first_gateway(node, version)
    async with node.agent():
        for row in (EgressPod("e", "shop/web"), EgressPod("e", "shop/plain"), *blocks(version)):
            node.facts.put(row)
        node.facts.put(Egress("e", "u", ip, node="n2", held=ip, survives=True))
        await node.engine.quiet()
        spaces = [node.pods[pod] for pod in BLOCKS]
        async with clients(spaces, CLIENT, OUTSIDE[version], str(OF_EACH)) as runs:
            sh("ip link set eth0 down; ip link set out down", node.peer)
            life = "/32 dev eth0" if version == 4 else "/128 dev eth0 nodad preferred_lft 0"
            sh(f"ip addr add {ip}{life}")
            sh(f"ip route del {ip} dev eth1", node.outside)
            await node.until(lambda: node.facts.get(LocalAddress, ip))
            await node.engine.quiet()
            await asyncio.sleep(3)  # they send and receive meanwhile
            for pod, run in zip(BLOCKS, runs, strict=True):
                for kind, alive, pause, seen in await results(run):
                    assert (kind, alive, seen[0]) == (kind, True, ip), (pod, kind, seen)
                    assert BLOCKS[pod][0] <= int(seen[1]) <= BLOCKS[pod][1]
                    assert pause < 10


@pytest.mark.parametrize("version", [4, 6])
async def test_an_answer_by_a_vlan_reaches_the_pod_of_another_node_which_answers_by_the_vlan(
    vlan: Node, version: int
) -> None:
    (ip, prefix), pod, far = VLAN[version], FAR_PODS[version], FAR[version]
    worker, path = NetnsWorker(), vlan.netns.path
    vlan.facts.put(wide_pool("vlan", (), GATEWAYS[version], prefix, 181))
    with contextlib.ExitStack() as stack:
        stack.callback(worker.close)
        router = stack.enter_context(await worker.run(path(vlan.router), lambda: raw(version)))
        router.bind((far, 0))
        peer = stack.enter_context(await worker.run(path(vlan.peer), link))
        async with vlan.agent():
            vlan.facts.put(Egress("e", "u", ip, pool="vlan", survives=True))
            vlan.facts.put(EgressPortBlock("e", "shop/far", 4096, 4607, (pod,)))
            vlan.facts.put(EgressOwner("e", "n1", home="n2"))
            await vlan.until(lambda: vlan.facts.get(LocalAddress, ip))
            await vlan.engine.quiet()
            # ends of the connection, which is not tracked
            router.sendto(segment(far, ip, (SERVED, PORT), 900, 4900, FIN | ACK), (ip, 0))
            _, answer = await asyncio.to_thread(carried, peer)
            assert answer == Segment(far, (SERVED, PORT), 900, FIN | ACK)
            sent = segment(pod, far, (PORT, SERVED), 4900, 901, FIN | ACK)
            peer.send(frame(ip_mac(ip), pod, far, socket.IPPROTO_TCP, sent))
            assert await asyncio.to_thread(heard, router, version) == Segment(
                ip, (PORT, SERVED), 4900, FIN | ACK
            )

            router.sendto(segment(far, ip, (SERVED, PORT), 1000, 5000, ACK), (ip, 0))
            _, answer = await asyncio.to_thread(carried, peer)
            assert answer == Segment(far, (SERVED, PORT), 1000, ACK)

            sent = segment(pod, far, (PORT, SERVED), 5000, 1001, ACK)
            peer.send(frame(ip_mac(ip), pod, far, socket.IPPROTO_TCP, sent))
            assert await asyncio.to_thread(heard, router, version) == Segment(ip, (PORT, SERVED), 5000, ACK)

            # and it keeps the address from going back while nobody uses it
            feed = asyncio.create_task(IdleFeed("n1", idle_seconds=0).run(vlan.facts))
            await asyncio.sleep(2.5)
            assert not vlan.facts.all(UnusedAddress)
            feed.cancel()


def udp(version: int, ip: str, port: int) -> socket.socket:
    one = socket.socket(FAMILIES[version], socket.SOCK_DGRAM)
    one.settimeout(30)
    one.bind((ip, port))
    return one


@pytest.mark.parametrize("version", [4, 6])
async def test_what_uses_no_port_of_its_block_gets_one_that_is_in_none_and_nothing_new_comes_in(
    node: Node, version: int
) -> None:
    ip, sh = EGRESS[version], node.netns.sh
    sh(f"ip addr add {ip}{'/32 dev eth0' if version == 4 else '/128 dev eth0 nodad preferred_lft 0'}")
    worker, path = NetnsWorker(), node.netns.path
    first = BLOCKS["web"][0]
    with contextlib.ExitStack() as stack:
        stack.callback(worker.close)
        outside = stack.enter_context(
            await worker.run(path(node.outside), lambda: udp(version, OUTSIDE[version], SERVED))
        )
        async with node.agent():
            for row in (EgressPod("e", "shop/web"), EgressPod("e", "shop/plain"), blocks(version)[0]):
                node.facts.put(row)
            node.facts.put(Egress("e", "u", ip, survives=True))
            await node.until(lambda: node.facts.get(LocalAddress, ip))
            await node.engine.quiet()
            seen = {}
            for pod, port in (("web", first), ("web", 40000), ("plain", first)):
                ips = PODS if pod == "web" else PLAIN
                one = await worker.run(path(node.pods[pod]), partial(udp, version, ips[version], port))
                stack.enter_context(one).sendto(b"x", (OUTSIDE[version], SERVED))
                seen[pod, port] = (await asyncio.to_thread(outside.recvfrom, 99))[1][:2]
            assert seen["web", first] == (ip, first)
            for other in (("web", 40000), ("plain", first)):
                assert seen[other][0] == ip
                assert OTHER_PORTS[0] <= seen[other][1] <= OTHER_PORTS[1]

            # a host outside that no Pod has sent to begins
            web = stack.enter_context(await worker.run(path(node.pods["web"]), lambda: raw(version)))
            served = await worker.run(path(node.pods["web"]), lambda: udp(version, PODS[version], first + 1))
            stranger = await worker.run(path(node.outside), lambda: udp(version, OUTSIDE[version], 7))
            knock = await worker.run(path(node.outside), lambda: raw(version))
            for opened in (served, stranger, knock):
                stack.enter_context(opened)
            stranger.sendto(b"new", (ip, first + 1))
            knock.sendto(segment(OUTSIDE[version], ip, (SERVED, first + 1), 1, 0, SYN), (ip, 0))
            knock.sendto(segment(OUTSIDE[version], ip, (SERVED, first + 2), 2, 9, ACK), (ip, 0))
            # the end of a connection of the Pod, which the host outside does not know, is the first to come
            web.sendto(
                segment(PODS[version], OUTSIDE[version], (first + 3, SERVED), 10, 20, ACK),
                (OUTSIDE[version], 0),
            )
            answer = await asyncio.to_thread(heard, web, version)
            assert answer == Segment(OUTSIDE[version], (SERVED, first + 3), 20, RST)
            served.setblocking(False)
            with pytest.raises(BlockingIOError):
                served.recv(99)


async def test_a_pod_has_the_kernels_port_range_again_when_its_egress_gives_it_no_block(node: Node) -> None:
    def port_range() -> list[str]:
        return node.netns.sh("cat /proc/sys/net/ipv4/ip_local_port_range", node.pods["web"]).split()

    async with node.agent():
        node.facts.put(Egress("e", "u", EGRESS[4], survives=True))
        node.facts.put(blocks(4)[0])
        await node.engine.quiet()
        assert port_range() == [str(port) for port in BLOCKS["web"]]
        node.facts.drop(EgressPortBlock, "e shop/web")
        await node.engine.quiet()
        assert port_range() == ["32768", "60999"]
        # what a Pod has set itself stays
        node.facts.put(blocks(4)[0])
        await node.engine.quiet()
        node.netns.sh("echo 2000 3000 > /proc/sys/net/ipv4/ip_local_port_range", node.pods["web"])
        node.facts.drop(Egress, "e")
        await node.engine.quiet()
        assert port_range() == ["2000", "3000"]


async def test_a_later_start_restores_the_range_of_a_pod_whose_egress_is_gone(
    node: Node, tmp_path: Path
) -> None:
    range_of = {}
    for pod, (first, last) in BLOCKS.items():
        range_of[pod] = PodSysctl(
            netns=node.netns.path(node.pods[pod]),
            path="net/ipv4/ip_local_port_range",
            value=f"{first}\t{last}",
            default="32768\t60999",
            category=4,
        )

    def ranges() -> list[list[str]]:
        file = "/proc/sys/net/ipv4/ip_local_port_range"
        return [node.netns.sh(f"cat {file}", node.pods[pod]).split() for pod in BLOCKS]

    before = PodSysctlSink(tmp_path / "pod-settings")
    await before.resync([*range_of.values()])
    before.close()
    both = [[str(port) for port in block] for block in BLOCKS.values()]
    assert ranges() == both
    later = PodSysctlSink(tmp_path / "pod-settings")
    await later.resync([range_of["web"]])
    assert ranges() == both
    await later.sweep(4)
    assert ranges() == [both[0], ["32768", "60999"]]
    later.close()
    # what is left of a file that was damaged is nothing
    (tmp_path / "pod-settings").write_bytes(b"x")
    third = PodSysctlSink(tmp_path / "pod-settings")
    await third.resync([])
    await third.sweep(4)
    assert ranges()[0] == both[0]
    third.close()
