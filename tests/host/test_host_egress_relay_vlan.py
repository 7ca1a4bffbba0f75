"""An Egress IP in a VLAN that moves to another Node: late packets leave tagged by its gateway without the address."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
import tunnel_frame
from egress_node import FAMILIES, FAR, GATEWAYS, PODS, Node, link
from wide_pool import wide_pool

from antrea.facts.egress import Egress, EgressOwner, EgressPod, ReleasedAddress
from antrea.facts.member import GossipMember, Quorum
from antrea.facts.node import LocalAddress
from antrea.features.egress.agent_part import graceful_handover
from antrea.host.carrier import RELAYED_MACS, ip_mac
from antrea.outside.netlink.netns import NetnsWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import Namespaces

SERVED = 7777
IPS = {4: ("172.16.181.40", 24), 6: ("fd00:181::40", 64)}
FAR_PODS = {4: "10.10.1.9", 6: "fd00:10:1::9"}


@pytest.fixture
def node(netns: Namespaces, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """No moment of a move ends by itself."""
    for name in ("RELAY_SECONDS", "LINGER_SECONDS"):
        monkeypatch.setattr(graceful_handover, name, 600.0)
    with Node(netns).standing() as there:
        there.plug_tunnel()
        there.plug_vlan(181)
        there.facts.put(GossipMember("n2", alive=True))
        there.facts.put(Quorum(has=True, alive=2, of=2))
        yield there


@pytest.fixture
async def worker() -> AsyncIterator[NetnsWorker]:
    worker = NetnsWorker()
    yield worker
    worker.close()


def bound(ip: str, version: int) -> socket.socket:
    one = socket.socket(FAMILIES[version], socket.SOCK_DGRAM)
    one.settimeout(30)
    one.bind((ip, SERVED))
    return one


def from_far(version: int, data: bytes) -> bytes:
    """A packet of another Node's Pod, as that Node sends it for the Egress IP."""
    source, target = FAR_PODS[version], FAR[version]
    body = tunnel_frame.datagram(source, target, (5000, SERVED), data)
    return tunnel_frame.frame(ip_mac(IPS[version][0]), source, target, socket.IPPROTO_UDP, body)


def answer(version: int, port: int, data: bytes) -> bytes:
    """An answer to the Egress IP that n2 received and does not track."""
    source, target = FAR[version], IPS[version][0]
    body = tunnel_frame.datagram(source, target, (SERVED, port), data)
    return tunnel_frame.frame(RELAYED_MACS[0], source, target, socket.IPPROTO_UDP, body)


@pytest.mark.parametrize("version", [4, 6])
async def test_late_packets_leave_by_the_vlan_of_an_address_that_was_the_last_there(
    node: Node, worker: NetnsWorker, version: int
) -> None:
    ip, prefix = IPS[version]
    path = node.netns.path
    node.facts.put(wide_pool("vlan", (), GATEWAYS[version], prefix, 181))
    async with node.agent():
        far = await worker.run(path(node.router), lambda: bound(FAR[version], version))
        pod = await worker.run(path(node.pods["web"]), lambda: bound(PODS[version], version))
        peer = await worker.run(path(node.peer), link)
        with far, pod, peer:
            node.facts.put(Egress("web", "u", ip, pool="vlan", node="n1", held=ip))
            node.facts.put(EgressPod("web", "shop/web"))
            node.facts.put(EgressOwner("web", "n1"))
            await node.until(lambda: node.facts.get(LocalAddress, ip))
            await node.engine.quiet()
            pod.sendto(b"question", (FAR[version], SERVED))
            data, ours = await asyncio.to_thread(far.recvfrom, 99)
            assert (data, ours[0]) == (b"question", ip)
            peer.send(from_far(version, b"early"))
            data, theirs = await asyncio.to_thread(far.recvfrom, 99)
            assert (data, theirs[0]) == (b"early", ip)

            node.facts.put(EgressOwner("web", "n2"))
            node.facts.put(Egress("web", "u", ip, pool="vlan", node="n2", held=ip))
            await node.until(lambda: not node.facts.get(LocalAddress, ip))
            await node.engine.quiet()
            assert f"{ip}/" not in node.netns.sh("ip addr show")
            peer.send(from_far(version, b"late"))
            assert await asyncio.to_thread(far.recvfrom, 99) == (b"late", theirs)
            peer.send(answer(version, ours[1], b"answer"))
            assert await asyncio.to_thread(pod.recv, 99) == b"answer"
            # a router that has not learned of n2 yet
            far.sendto(b"direct", ours[:2])
            assert await asyncio.to_thread(pod.recv, 99) == b"direct"

            node.facts.drop(ReleasedAddress, "web")
            await node.engine.quiet()
            assert "antrea-ext.181" not in node.switch.ports("br-phy")
