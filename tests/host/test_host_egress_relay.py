"""An Egress IP that moves between two Nodes: what a Node does with answers that come to it and belong to the other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

import pytest
import tunnel_frame
from egress_node import EGRESS, FAMILIES, NODES, OUTSIDE, PODS, SERVER, Node, link

from antrea.facts.egress import AnnouncedAddress, Egress, EgressOwner, EgressPod, ReleasedAddress
from antrea.facts.member import GossipMember, Quorum
from antrea.facts.node import LocalAddress, LocalLink
from antrea.features.egress.agent_part import graceful_handover
from antrea.host.carrier import RELAYED_MACS, ip_mac
from antrea.openflow.packet import packet
from antrea.outside.netlink.netns import NetnsWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import Namespaces

SERVED = 7777
FAR = {4: "10.10.1.9", 6: "fd00:10:1::9"}
ACK, RST = 0x10, 0x04
VERSIONS = pytest.mark.parametrize("version", [4, 6])


class Place(NamedTuple):
    """Sockets in the namespaces around the Node."""

    pod: socket.socket
    outside: socket.socket
    peer: socket.socket
    """What the tunnel carries to the other Node, and from it."""


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    with Node(netns).standing() as there:
        there.plug_tunnel()
        there.facts.put(GossipMember("n2", alive=True))
        there.facts.put(Quorum(has=True, alive=2, of=2))
        with there.serving(there.outside, SERVER):
            yield there


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No moment of a move ends by itself: how long each lasts is in test_agent_handover.py."""
    for name in ("RELAY_SECONDS", "LINGER_SECONDS"):
        monkeypatch.setattr(graceful_handover, name, 600.0)


@pytest.fixture
async def worker() -> AsyncIterator[NetnsWorker]:
    worker = NetnsWorker()
    yield worker
    worker.close()


@contextlib.asynccontextmanager
async def sockets(node: Node, worker: NetnsWorker, version: int) -> AsyncIterator[Place]:
    def bound(ip: str, port: int) -> socket.socket:
        one = socket.socket(FAMILIES[version], socket.SOCK_DGRAM)
        one.settimeout(30)
        one.bind((ip, port))
        return one

    path = node.netns.path
    at = Place(
        await worker.run(path(node.pods["web"]), lambda: bound(PODS[version], 0)),
        await worker.run(path(node.outside), lambda: bound(OUTSIDE[version], SERVED)),
        await worker.run(path(node.peer), link),
    )
    try:
        yield at
    finally:
        for one in at:
            one.close()


def relayed(peer: socket.socket) -> tuple[str, str, bytes]:
    """To whom, from whom and what, of the next answer that the tunnel carries."""
    while True:
        frame = peer.recv(2000)
        if frame[6:12].hex(":") == RELAYED_MACS[0]:
            found = packet(frame)
            return found.destination, found.source, found.payload[8:]


def datagram(version: int, ports: tuple[int, int], data: bytes) -> bytes:
    """An answer of the host outside to the Egress IP, as the other Node hands it on."""
    source, target = OUTSIDE[version], EGRESS[version]
    body = tunnel_frame.datagram(source, target, ports, data)
    return tunnel_frame.frame(RELAYED_MACS[0], source, target, socket.IPPROTO_UDP, body)


def udp(version: int) -> socket.socket:
    return socket.socket(FAMILIES[version], socket.SOCK_DGRAM)


def raw(version: int) -> socket.socket:
    one = socket.socket(FAMILIES[version], socket.SOCK_RAW, socket.IPPROTO_TCP)
    one.settimeout(30)
    return one


def reset(segments: socket.socket, version: int) -> tuple[str, int, int]:
    """From which address and port the next reset of a connection comes, with which sequence number."""
    while True:
        data, who = segments.recvfrom(2000)
        body = data[4 * (data[0] & 15) :] if version == 4 else data
        source, _, sequence, _, _, flags = struct.unpack("!HHIIBB", body[:14])
        if flags & RST:
            return who[0], source, sequence


def datagrams(wire: socket.socket, last: bytes) -> list[bytes]:
    """What the datagrams that come by this link say, up to the last one."""
    found: list[bytes] = []
    while last not in found:
        frame = wire.recv(2000)
        one = packet(frame) if frame[12:14] in (b"\x08\x00", b"\x86\xdd") else None
        if one and one.protocol == socket.IPPROTO_UDP:
            found.append(one.payload[8:])
    return found


def from_far(version: int, data: bytes) -> bytes:
    """A packet of a connection of another Node's Pod to the host outside, as that Node sends it for the Egress IP."""
    source, target = FAR[version], OUTSIDE[version]
    body = tunnel_frame.datagram(source, target, (5000, SERVED), data)
    return tunnel_frame.frame(ip_mac(EGRESS[version]), source, target, socket.IPPROTO_UDP, body)


async def moving(node: Node, version: int, holder: str, owner: str) -> None:
    """`owner` is to take the address that `holder` has by its status."""
    ip = EGRESS[version]
    node.facts.put(Egress("web", "u", ip, pool="p", node=holder, held=ip))
    node.facts.put(EgressPod("web", "shop/web"))
    node.facts.put(EgressOwner("web", owner))
    if owner == "n1":
        await node.until(lambda: node.facts.get(LocalAddress, ip))
    await node.engine.quiet()


async def read(where: socket.socket) -> tuple[bytes, tuple[str, int]]:
    data, who = await asyncio.to_thread(where.recvfrom, 99)
    return data, who[:2]


async def asked(at: Place, version: int) -> tuple[str, int]:
    """As whom the host outside sees the Pod: with the Egress IP."""
    at.pod.sendto(b"question", (OUTSIDE[version], SERVED))
    data, who = await read(at.outside)
    assert (data, who[0]) == (b"question", EGRESS[version])
    return who


@VERSIONS
async def test_who_takes_an_address_hands_on_answers_that_it_does_not_know_and_keeps_its_own(
    node: Node, worker: NetnsWorker, version: int
) -> None:
    ip = EGRESS[version]
    async with node.agent(), sockets(node, worker, version) as at:
        await moving(node, version, "n2", "n1")
        # the announcement went out, so answers to what left by n2 come here
        await node.until(lambda: node.facts.get(AnnouncedAddress, "web"))
        at.outside.sendto(b"answer", (ip, 4000))
        assert await asyncio.to_thread(relayed, at.peer) == (ip, OUTSIDE[version], b"answer")
        await moving(node, version, "n1", "n1")
        who = await asked(at, version)
        at.outside.sendto(b"mine", who)
        assert (await read(at.pod))[0] == b"mine"
        at.outside.sendto(b"late", (ip, 4000))
        assert (await asyncio.to_thread(relayed, at.peer))[2] == b"late"
        # and when all have come it is as any other Node with its address
        node.facts.drop(AnnouncedAddress, "web")
        await node.engine.quiet()
        assert "relay-" not in node.netns.sh("nft list ruleset")
        assert await node.source("web", version) == ip


@VERSIONS
async def test_who_gives_an_address_up_has_it_no_longer_and_still_translates_late_packets_and_answers(
    node: Node, worker: NetnsWorker, version: int
) -> None:
    """For a moment: of Nodes that hear of the move later, and of connections that only this Node tracks."""
    ip = EGRESS[version]
    async with node.agent(), sockets(node, worker, version) as at:
        await moving(node, version, "n1", "n1")
        who = await asked(at, version)
        at.peer.send(from_far(version, b"early"))
        data, far = await read(at.outside)
        assert (data, far[0]) == (b"early", ip)
        at.outside.sendto(b"mine", who)  # it knows the neighbor from now on
        assert (await read(at.pod))[0] == b"mine"
        await moving(node, version, "n2", "n2")
        node.facts.put(ReleasedAddress("web", ip, "n2"))
        await node.until(lambda: not node.facts.get(LocalAddress, ip))
        await node.engine.quiet()
        assert ip not in node.netns.sh("ip addr show")
        assert node.unassigned == [ip]
        at.peer.send(from_far(version, b"late"))
        assert await read(at.outside) == (b"late", far)
        # n2 announced itself, got the answer and does not know it
        at.peer.send(datagram(version, (SERVED, who[1]), b"answer"))
        assert (await read(at.pod))[0] == b"answer"
        # a neighbour that has not heard of n2 yet sends here what n2 knows
        at.outside.sendto(b"not mine", (ip, 4000))
        assert (await asyncio.to_thread(relayed, at.peer))[2] == b"not mine"
        # who asks gets no answer here, though this Node answers for its own
        node.netns.sh("ip neigh flush all; ip -6 neigh flush all", node.outside)
        ping = f"ping -c 1 -W 10 {NODES[version]}; ping -c 1 -W 1 {ip}; ip neigh show {{}}"
        assert "lladdr" in node.netns.run(ping.format(NODES[version]), node.outside).stdout
        assert "lladdr" not in node.netns.run(ping.format(ip), node.outside).stdout.splitlines()[-1]
        node.facts.drop(ReleasedAddress, "web")
        await node.engine.quiet()
        assert not any(word in node.netns.sh("nft list ruleset") for word in ("relay-", "silence-", ip))


@VERSIONS
async def test_answers_are_handed_on_by_a_gateway_that_was_made_anew_under_its_name(
    node: Node, worker: NetnsWorker, version: int
) -> None:
    """The rule holds the index of the gateway, which is another one then."""
    ip = EGRESS[version]
    async with node.agent(), sockets(node, worker, version) as at:
        await moving(node, version, "n1", "n1")
        at.outside.sendto(b"mine", await asked(at, version))  # it knows the neighbor from now on
        assert (await read(at.pod))[0] == b"mine"
        await moving(node, version, "n2", "n2")
        at.outside.sendto(b"before", (ip, 4000))
        assert (await asyncio.to_thread(relayed, at.peer))[2] == b"before"
        before = node.facts.need(LocalLink, "antrea-gw0")
        node.make_gateway_anew()
        await node.until(lambda: node.facts.get(LocalLink, "antrea-gw0") not in (None, before))
        await node.engine.quiet()
        at.outside.sendto(b"after", (ip, 4000))
        assert (await asyncio.to_thread(relayed, at.peer))[2] == b"after"


async def given_up(node: Node, version: int) -> None:
    """The address was here, and n2 has it now."""
    await moving(node, version, "n1", "n1")
    await moving(node, version, "n2", "n2")
    await node.until(lambda: not node.facts.get(LocalAddress, EGRESS[version]))
    await node.engine.quiet()


def answer_outside(node: Node, version: int) -> None:
    """In the place of n2, which has the address, neighbors are answered."""
    there = "/32 dev eth0" if version == 4 else "/128 dev eth0 nodad"
    node.netns.sh(f"ip addr add {EGRESS[version]}{there}", node.outside)


@VERSIONS
async def test_what_neither_node_knows_does_not_go_round_between_them(
    node: Node, worker: NetnsWorker, version: int
) -> None:
    ip = EGRESS[version]
    async with node.agent(), sockets(node, worker, version) as at:
        await given_up(node, version)
        with await worker.run(node.netns.path(node.outside), lambda: raw(version)) as segments:
            body = tunnel_frame.segment(OUTSIDE[version], ip, (SERVED, 4000), 1, 7000, ACK)
            at.peer.send(tunnel_frame.frame(RELAYED_MACS[0], OUTSIDE[version], ip, socket.IPPROTO_TCP, body))
            # from the address, where the middle of no connection was received
            assert await asyncio.to_thread(reset, segments, version) == (ip, 4000, 7000)
        at.outside.connect((ip, 4000))
        at.peer.send(datagram(version, (SERVED, 4000), b"whose?"))
        with pytest.raises(ConnectionRefusedError):
            await read(at.outside)


@VERSIONS
async def test_an_answer_to_an_address_that_moved_long_ago_is_not_forwarded(
    node: Node, worker: NetnsWorker, version: int
) -> None:
    """The Node that has it may hand answers on for longer than this one expects them."""
    async with node.agent(), sockets(node, worker, version) as at:
        await given_up(node, version)
        answer_outside(node, version)
        node.facts.drop(ReleasedAddress, "web")
        await node.engine.quiet()
        with await worker.run(node.netns.path(node.outside), link) as wire:
            at.peer.send(datagram(version, (SERVED, 4000), b"whose?"))
            plain = await worker.run(node.netns.path(node.pods["plain"]), lambda: udp(version))
            with plain:
                plain.sendto(b"after it", (EGRESS[version], SERVED))
            assert await asyncio.to_thread(datagrams, wire, b"after it") == [b"after it"]


@VERSIONS
async def test_a_pod_reaches_an_address_that_its_node_gave_up_at_the_node_that_has_it(
    node: Node, worker: NetnsWorker, version: int
) -> None:
    """What a Pod sends is no answer of another Node."""
    ip = EGRESS[version]
    async with node.agent(), sockets(node, worker, version):
        await given_up(node, version)
        answer_outside(node, version)
        assert await node.source("plain", version, ip) == NODES[version]
