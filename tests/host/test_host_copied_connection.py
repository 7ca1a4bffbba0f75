"""Connections of the kernel's table are reported as they come and go, and entered into another table, by real packets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, cast

import pytest

from antrea.engine import Facts
from antrea.facts.egress import ConnectionCopy, CopiedAddress, CopySource
from antrea.facts.member import AgentNode, GossipMember
from antrea.facts.node import LocalAddress
from antrea.features.egress.agent.copy_stream import BEGIN, END, Batch, Receipt, decode_copy, encode_copy
from antrea.features.egress.agent_part import copy_receiver
from antrea.features.egress.agent_part.connection_copier import PURPOSE, ConnectionCopier
from antrea.features.egress.agent_part.copy_receiver import CopyReceiver
from antrea.outside.gossip.feed import GossipFeed
from antrea.outside.netlink.connection_event import Change, ConnectionEvents
from antrea.outside.netlink.connection_record import records
from antrea.outside.netlink.copied_connection import CopiedConnections
from antrea.outside.netlink.netns import NetnsWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from conftest import Namespaces

PODS = {4: "10.1.0.2", 6: "fd01::2"}
OUTSIDE = {4: "192.0.2.100", 6: "fd02::100"}
IP = {4: "192.0.2.50", 6: "fd02::50"}
SIZE = {4: 16, 6: 40}


class Network:
    """A Pod, the gateway, which is the test's namespace, and a host outside."""

    def __init__(self, netns: Namespaces) -> None:
        self.netns, self.worker = netns, NetnsWorker()
        self.pod, self.outside = netns.make(), netns.make()
        sh = netns.sh
        for far, dev, v4, v6 in (
            (self.pod, "inn", "10.1.0", "fd01"),
            (self.outside, "out", "192.0.2", "fd02"),
        ):
            number = 2 if dev == "inn" else 100
            sh(f"ip link add {dev} type veth peer name eth0 netns {far}; ip link set {dev} up")
            sh(f"ip addr add {v4}.1/24 dev {dev}; ip addr add {v6}::1/64 dev {dev} nodad")
            sh(f"ip link set eth0 up; ip addr add {v4}.{number}/24 dev eth0", far)
            sh(f"ip addr add {v6}::{number}/64 dev eth0 nodad", far)
        sh("ip route add default via 10.1.0.1; ip -6 route add default via fd01::1", self.pod)
        sh(f"ip route add {IP[4]} via 192.0.2.1; ip -6 route add {IP[6]} via fd02::1", self.outside)
        sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
        rules = "; ".join(
            f"add rule inet t p oifname out {kind} saddr {net} snat {kind} to {ip}"
            for kind, net, ip in (("ip", "10.1.0.0/24", IP[4]), ("ip6", "fd01::/64", IP[6]))
        )
        sh(
            f"nft 'add table inet t; add chain inet t p {{ type nat hook postrouting priority srcnat; }}; {rules}'"
        )

    async def open(self, space: str, version: int, kind: int) -> socket.socket:
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        return await self.worker.run(self.netns.path(space), partial(socket.socket, family, kind))


@pytest.fixture
async def network(netns: Namespaces) -> AsyncIterator[Network]:
    there = Network(netns)
    yield there
    there.worker.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (the kernel tells nobody)
            await asyncio.sleep(0.02)


async def connected(
    network: Network, version: int, stack: contextlib.ExitStack
) -> tuple[socket.socket, bytes]:
    """A TCP connection of the Pod, and its record."""
    server = stack.enter_context(await network.open(network.outside, version, socket.SOCK_STREAM))
    server.bind((OUTSIDE[version], 0))
    server.listen()
    client = stack.enter_context(await network.open(network.pod, version, socket.SOCK_STREAM))
    before = set(records(IP[version]))
    await asyncio.to_thread(client.connect, server.getsockname()[:2])
    stack.enter_context((await asyncio.to_thread(server.accept))[0])
    (record,) = set(records(IP[version])) - before
    return client, record


@pytest.mark.parametrize("version", [4, 6])
async def test_a_connection_is_reported_when_it_is_established_and_when_it_ends(
    network: Network, version: int
) -> None:
    events = ConnectionEvents()
    with contextlib.closing(events), contextlib.ExitStack() as stack:
        client, record = await connected(network, version, stack)
        assert len(record) == SIZE[version]
        packed = socket.inet_pton(socket.AF_INET if version == 4 else socket.AF_INET6, IP[version])
        changes, lost = events.changes(10)
        assert (changes, lost) == ([(packed, record, False)], False)
        # a reset ends it at once
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        await until(lambda: records(IP[version]) == [])
        ended, _ = events.changes(10)
        assert [(ip, row, gone) for ip, row, gone in ended] == [(packed, record, True)]


@pytest.mark.parametrize("version", [4, 6])
async def test_a_connection_goes_on_with_an_entry_that_was_made_anew(network: Network, version: int) -> None:
    with contextlib.ExitStack() as stack:
        client, record = await connected(network, version, stack)
        kernel = stack.enter_context(contextlib.closing(CopiedConnections()))
        network.netns.sh("conntrack -F 2>/dev/null; conntrack -F -f ipv6 2>/dev/null")
        assert records(IP[version]) == []
        assert kernel.put(IP[version], [record]) == (0, False)
        assert records(IP[version]) == [record]
        client.sendall(b"x")
        # what stands with another port is replaced
        other = record[:-2] + bytes((7, 7))
        assert kernel.put(IP[version], [other]) == (0, False)
        assert records(IP[version]) == [other]
        kernel.remove(IP[version], [other])
        assert records(IP[version]) == []


@pytest.mark.parametrize("version", [4, 6])
async def test_datagrams_are_reported_as_a_stream_and_answers_come_by_an_entry_that_was_made_anew(
    network: Network, version: int
) -> None:
    events = ConnectionEvents()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(events))
        kernel = stack.enter_context(contextlib.closing(CopiedConnections()))
        outside = stack.enter_context(await network.open(network.outside, version, socket.SOCK_DGRAM))
        pod = stack.enter_context(await network.open(network.pod, version, socket.SOCK_DGRAM))
        outside.bind((OUTSIDE[version], 0))
        pod.connect(outside.getsockname()[:2])
        pod.settimeout(20)
        changes: list[Change] = []
        async with asyncio.timeout(20):
            while not changes:
                pod.send(b"x")
                _, peer = outside.recvfrom(9)
                outside.sendto(b"y", peer)
                assert pod.recv(9) == b"y"
                await asyncio.sleep(0.1)
                changes = events.changes(10)[0]
        (record,) = records(IP[version])
        assert [(one.record, one.ended) for one in changes] == [(record, False)]
        network.netns.sh(f"conntrack -F -f ipv{version} 2>/dev/null")
        kernel.put(IP[version], [record])
        outside.sendto(b"first", peer)
        assert await asyncio.to_thread(pod.recv, 9) == b"first"


async def test_a_receiver_that_asks_gets_one_new_stream_from_its_beginning(netns: Namespaces) -> None:
    """Two Nodes on loopback; the test is the receiver at the second."""
    nodes = [AgentNode(name, (ip,), (ip,)) for name, ip in (("n1", "127.0.77.1"), ("n2", "127.0.77.2"))]
    facts = {node.name: Facts() for node in nodes}
    feeds = {node.name: GossipFeed(node.name, node.ips[0], 10351) for node in nodes}
    batches: list[Batch] = []
    feeds["n2"].on_carried(PURPOSE, lambda _, data: batches.append(cast("Batch", decode_copy(data))))
    copier = ConnectionCopier(feeds["n1"])
    tasks = []
    for name, feed in feeds.items():
        for row in (*nodes, ConnectionCopy(IP[4], ("n2",), whole=True)):
            facts[name].put(row)
        facts[name].synced(AgentNode)
        feed.keys([bytes(32)])
        tasks.append(asyncio.create_task(feed.run(facts[name])))
    tasks.append(asyncio.create_task(copier.run(facts["n1"])))
    try:
        await until(lambda: any(batch.mark == END for batch in batches))
        first = batches[0]
        assert (first.number, first.mark) == (0, BEGIN)
        feeds["n2"].carry("n1", PURPOSE, encode_copy(Receipt(0, True, False, 0, False)))
        await until(lambda: batches[-1].stream != first.stream and batches[-1].number > 3)
        streams = [batch.stream for batch in batches if batch.number == 0]
        assert streams == [first.stream, batches[-1].stream]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Receiver:
    """The receiver of a Node that accepts the copies of n1."""

    def __init__(self) -> None:
        self.facts, self.counts, self.sent = Facts(), Counter[str](), list[Receipt]()
        self.facts.put(GossipMember("n1", alive=True))
        self.facts.put(CopySource(IP[4], "n1"))
        self.facts.put(AgentNode("n1", ("192.0.2.11",), ("192.0.2.11",), pod_cidrs=("10.1.0.0/24",)))
        self.facts.put(LocalAddress("192.0.2.1", "out"))
        self.receiver = CopyReceiver(self.facts, self.counts, self._send)
        self._number = 0

    def _send(self, to: str, data: bytes) -> None:
        message = decode_copy(data)
        assert isinstance(message, Receipt)
        self.sent.append(message)

    def put(self, sender: str, number: int, mark: int = 0, put: bytes = b"", ended: bytes = b"") -> None:
        packed = socket.inet_aton(IP[4])
        self.receiver.put(sender, Batch(7, number, packed, mark, put, ended))


def record(
    port: int, *, source: str = PODS[4], target: str = OUTSIDE[4], kind: tuple[int, int] = (6, 3)
) -> bytes:
    ends = socket.inet_aton(source) + socket.inet_aton(target)
    return bytes(kind) + ends + port.to_bytes(2, "big") + (80).to_bytes(2, "big") + port.to_bytes(2, "big")


@contextlib.asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    there = Receiver()
    task = asyncio.create_task(there.receiver.run())
    try:
        yield there
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def ports() -> list[int]:
    return sorted(int.from_bytes(row[-2:], "big") for row in records(IP[4]))


async def test_a_snapshot_replaces_what_stood_and_changes_follow_it(netns: Namespaces) -> None:
    async with receiving() as there:
        there.put("n1", 0, BEGIN | END, record(1001) + record(1002))
        await until(lambda: ports() == [1001, 1002])
        assert there.facts.get(CopiedAddress, IP[4]) == CopiedAddress(IP[4], "n1")
        there.put("n1", 1, 0, record(1003), record(1001))
        await until(lambda: ports() == [1002, 1003])
        there.put("n1", 2, BEGIN, record(1003))
        there.put("n1", 3, END, record(1004))
        await until(lambda: ports() == [1003, 1004])
        await until(lambda: bool(there.sent))
        assert not there.sent[-1].asks
        # a message is missing: the rest is not accepted, and another stream is asked for
        there.put("n1", 5, 0, record(1005))
        await until(lambda: there.sent[-1].asks)
        there.put("n1", 6, 0, record(1006))
        await until(lambda: there.counts["stale"] == 1)
        assert ports() == [1003, 1004]


async def test_what_another_node_than_the_holder_sends_changes_nothing(netns: Namespaces) -> None:
    async with receiving() as there:
        there.put("n1", 0, BEGIN | END, record(1001))
        await until(lambda: ports() == [1001])
        there.put("n2", 0, BEGIN | END, record(1002))
        await until(lambda: there.counts["stale"] == 1)
        # this Node has taken the address over: the one before may still send
        there.facts.drop(CopySource, IP[4])
        there.put("n1", 1, BEGIN | END)
        await until(lambda: there.counts["stale"] == 2)
        assert ports() == [1001]


async def test_a_node_that_was_lost_begins_anew(netns: Namespaces) -> None:
    async with receiving() as there:
        there.put("n1", 0, BEGIN | END, record(1001))
        await until(lambda: ports() == [1001])
        there.facts.put(GossipMember("n1", alive=False))
        there.put("n1", 1, 0, record(1002))
        await until(lambda: there.counts["stale"] == 1)
        assert ports() == [1001]


@pytest.mark.parametrize(
    "hostile",
    [
        record(1, source="198.51.100.1"),
        record(1, source="192.0.2.1"),
        record(1, target="192.0.2.1"),
        record(1, target="10.1.0.9"),
        record(1, kind=(6, 9)),
        record(1, kind=(6, 200)),
        record(1, kind=(132, 3)),
        record(1, kind=(1, 0)),
    ],
    ids=["outside", "node", "to-node", "to-pod", "no-state", "unknown-state", "sctp", "icmp"],
)
async def test_entries_that_are_of_no_pods_connection_to_outside_are_not_made(
    netns: Namespaces, hostile: bytes
) -> None:
    """A Node that is somebody else's could let hosts outside past the firewall of others: what is established is accepted."""
    async with receiving() as there:
        there.put("n1", 0, BEGIN | END, hostile + record(1002), hostile)
        await until(lambda: ports() == [1002])
        assert there.counts["refused"] == 2


async def test_entries_of_another_address_are_not_removed(netns: Namespaces) -> None:
    other = "192.0.2.51"
    with contextlib.closing(CopiedConnections()) as kernel:
        assert kernel.put(other, [record(1001)]) == (0, False)
    async with receiving() as there:
        there.put("n1", 0, BEGIN | END, record(1002), record(1001))
        await until(lambda: ports() == [1002])
        assert records(other) == [record(1001)]


async def test_a_node_makes_no_more_entries_than_an_address_may_have(
    netns: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_receiver, "MAX_RECORDS", 3)
    async with receiving() as there:
        there.put("n1", 0, BEGIN | END, b"".join(record(port) for port in (1001, 1002)))
        there.put("n1", 1, 0, b"".join(record(port) for port in (1003, 1004, 1005)))
        there.put("n1", 2, 0, record(1006), record(1001))
        await until(lambda: ports() == [1002, 1003, 1006])
        assert there.counts["beyond"] == 1
