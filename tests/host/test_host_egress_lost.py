"""Segments from the middle of a connection whose gateway is lost: the next one passes them on, or answers for the other end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest
from egress_node import EGRESS, OUTSIDE, PODS, SERVER, Node, link
from raw_segment import ACK, FIN, PORT, RST, SERVED, SYN, Segment, carried, heard, raw
from tunnel_frame import frame, segment

from antrea.facts.egress import Egress, EgressPod
from antrea.facts.node import LocalAddress
from antrea.facts.ovs import OvsPort
from antrea.host.carrier import ip_mac
from antrea.openflow.packet import packet
from antrea.outside.netlink.netns import NetnsWorker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Namespaces

TO_SERVER = (PORT, SERVED)
FAR_PODS = {4: "10.10.1.9", 6: "fd00:10:1::9"}
VERSIONS = pytest.mark.parametrize("version", [4, 6])


def middle(version: int, sequence: int, ack: int, pod: str = "") -> bytes:
    """What a Pod, `web` of this Node if none is named, sends to a connection of its."""
    return segment(pod or PODS[version], OUTSIDE[version], TO_SERVER, sequence, ack, ACK)


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as there, there.serving(there.outside, SERVER):
        yield there


@pytest.fixture
def tunnel(netns: Namespaces) -> Iterator[Node]:
    """A Node with another one, of which the test is the end of the tunnel."""
    with Node(netns).standing() as there:
        there.plug_tunnel()
        yield there


@VERSIONS
async def test_a_connection_that_the_gateway_does_not_know_is_reset_where_the_egress_says_so(
    node: Node, version: int
) -> None:
    ip = EGRESS[version]
    life = "/32 dev eth0" if version == 4 else "/128 dev eth0 nodad preferred_lft 0"
    node.netns.sh(f"ip addr add {ip}{life}")
    worker = NetnsWorker()
    with contextlib.ExitStack() as stack:
        stack.callback(worker.close)
        path = node.netns.path
        pod = stack.enter_context(await worker.run(path(node.pods["web"]), lambda: raw(version)))
        outside = stack.enter_context(await worker.run(path(node.outside), lambda: raw(version)))
        async with node.agent():
            node.facts.put(EgressPod("e", "shop/web"))
            node.facts.put(Egress("e", "u", ip, resets=True))
            await node.until(lambda: node.facts.get(LocalAddress, ip))
            await node.engine.quiet()
            pod.sendto(middle(version, 1000, 5000), (OUTSIDE[version], 0))
            # the end of a connection in which the other end has sent up to 5000
            answer = await asyncio.to_thread(heard, pod, version)
            assert answer == Segment(OUTSIDE[version], (SERVED, PORT), 5000, RST)
            # a new connection is none that was lost
            assert await node.source("web", version) == ip

            node.facts.put(Egress("e", "u", ip))
            await node.engine.quiet()
            pod.sendto(middle(version, 2000, 6000), (OUTSIDE[version], 0))
            async with asyncio.timeout(30):
                while (found := await asyncio.to_thread(heard, outside, version)).sequence != 2000:
                    assert found.sequence != 1000
            assert (found.source, found.flags) == (ip, ACK)


@VERSIONS
async def test_the_gateway_resets_a_connection_of_a_pod_of_another_node_by_the_tunnel(
    tunnel: Node, version: int
) -> None:
    ip, pod = EGRESS[version], FAR_PODS[version]
    # the other end would answer what it does not know in the same words
    silence = (
        "add chain inet t out { type filter hook output priority 0; }; add rule inet t out tcp flags rst drop"
    )
    tunnel.netns.sh(f"nft 'add table inet t; {silence}'", tunnel.outside)
    tunnel.netns.sh(f"ip addr add {ip} dev eth0 {'nodad preferred_lft 0' if version == 6 else ''}")
    worker = NetnsWorker()
    with contextlib.ExitStack() as stack:
        stack.callback(worker.close)
        peer = stack.enter_context(await worker.run(tunnel.netns.path(tunnel.peer), link))
        async with tunnel.agent():
            tunnel.facts.put(Egress("e", "u", ip, resets=True))
            await tunnel.until(lambda: tunnel.facts.get(LocalAddress, ip))
            await tunnel.engine.quiet()
            sent = middle(version, 1000, 5000, pod)
            peer.send(frame(ip_mac(ip), pod, OUTSIDE[version], socket.IPPROTO_TCP, sent))
            data, answer = await asyncio.to_thread(carried, peer)
            assert answer == Segment(OUTSIDE[version], TO_SERVER[::-1], 5000, RST)
            assert packet(data).destination == pod


@VERSIONS
async def test_a_pod_hears_the_reset_of_a_gateway_on_another_node(tunnel: Node, version: int) -> None:
    ip, pod = EGRESS[version], PODS[version]
    worker = NetnsWorker()
    with contextlib.ExitStack() as stack:
        stack.callback(worker.close)
        path = tunnel.netns.path
        peer = stack.enter_context(await worker.run(path(tunnel.peer), link))
        web = stack.enter_context(await worker.run(path(tunnel.pods["web"]), lambda: raw(version)))
        async with tunnel.agent():
            tunnel.facts.put(EgressPod("e", "shop/web"))
            tunnel.facts.put(Egress("e", "u", ip, node="n2", held=ip, resets=True))
            await tunnel.engine.quiet()
            web.sendto(middle(version, 1000, 5000), (OUTSIDE[version], 0))
            data, found = await asyncio.to_thread(carried, peer)
            assert (data[6:12].hex(":"), found) == (ip_mac(ip), Segment(pod, TO_SERVER, 1000, ACK))
            ends = segment(OUTSIDE[version], pod, TO_SERVER[::-1], 5000, 0, RST)
            gateway = tunnel.facts.get(OvsPort, "antrea-gw0")
            assert gateway
            peer.send(frame(gateway.mac, OUTSIDE[version], pod, socket.IPPROTO_TCP, ends))
            assert await asyncio.to_thread(heard, web, version) == Segment(
                OUTSIDE[version], TO_SERVER[::-1], 5000, RST
            )


@VERSIONS
async def test_the_gateway_does_not_reset_the_other_end_of_a_connection_that_it_does_not_know(
    node: Node, version: int
) -> None:
    ip = EGRESS[version]
    node.netns.sh(
        f"ip addr add {ip}{'/32 dev eth0' if version == 4 else '/128 dev eth0 nodad preferred_lft 0'}"
    )
    worker = NetnsWorker()
    with contextlib.ExitStack() as stack:
        stack.callback(worker.close)
        path = node.netns.path
        outside = stack.enter_context(await worker.run(path(node.outside), lambda: raw(version)))
        async with node.agent():
            node.facts.put(Egress("e", "u", ip))
            await node.until(lambda: node.facts.get(LocalAddress, ip))
            await node.engine.quiet()
            source, ports = OUTSIDE[version], TO_SERVER[::-1]
            lost = segment(source, ip, ports, 1000, 5000, ACK)
            outside.sendto(lost, (ip, 0))
            # a new connection to a port without a process is refused, as ever
            outside.sendto(segment(source, ip, ports, 2000, 0, SYN), (ip, 0))
            assert (await asyncio.to_thread(heard, outside, version)).flags == RST | ACK

            node.facts.put(Egress("e", "u", ip, resets=True))
            await node.engine.quiet()
            outside.sendto(lost, (ip, 0))
            answer = await asyncio.to_thread(heard, outside, version)
            assert answer == Segment(ip, TO_SERVER, 5000, RST)


@VERSIONS
async def test_the_end_of_a_connection_that_the_gateway_does_not_know_does_not_leave_with_the_pods_address(
    node: Node, version: int
) -> None:
    ip = EGRESS[version]
    node.netns.sh(
        f"ip addr add {ip}{'/32 dev eth0' if version == 4 else '/128 dev eth0 nodad preferred_lft 0'}"
    )
    worker = NetnsWorker()
    with contextlib.ExitStack() as stack:
        stack.callback(worker.close)
        path = node.netns.path
        pod = stack.enter_context(await worker.run(path(node.pods["web"]), lambda: raw(version)))
        outside = stack.enter_context(await worker.run(path(node.outside), lambda: raw(version)))
        async with node.agent():
            node.facts.put(EgressPod("e", "shop/web"))
            node.facts.put(Egress("e", "u", ip))
            await node.until(lambda: node.facts.get(LocalAddress, ip))
            await node.engine.quiet()
            ends = segment(PODS[version], OUTSIDE[version], TO_SERVER, 1000, 5000, FIN | ACK)
            pod.sendto(ends, (OUTSIDE[version], 0))
            pod.sendto(middle(version, 2000, 6000), (OUTSIDE[version], 0))
            first = await asyncio.to_thread(heard, outside, version)
            assert (first.source, first.sequence) == (ip, 2000)
