"""Who is rejected hears of it at once, from whom it spoke to: Pods of the Node and hosts outside, in both families."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from switch_node import SwitchNode

from antrea.agent.assembly import active, pipeline_of
from antrea.agent.switch_packets import SwitchPackets
from antrea.apis import controlplane as cp
from antrea.config.agent import AgentConfig
from antrea.engine import Engine
from antrea.facts.node import LocalAddress, ThisNode, Transport
from antrea.features.feature import Realised
from antrea.features.network_policy.sent import SentAppliedMember, SentPolicy
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.addresses import AddressFeed
from antrea.outside.netlink import NetlinkSink
from antrea.outside.nft import KINDS as NFT_KINDS
from antrea.outside.nft import NftSink
from antrea.outside.ofctl import FlowSink
from antrea.outside.ofctl_meters import MeterSink
from antrea.outside.ofctl_run import Ofctl
from antrea.outside.rtnetlink import KINDS
from tests.unit.features.policy_world import ANY, native, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from conftest import Namespaces

    from antrea.engine import Sink

CONFIG = AgentConfig(ovs_datapath_type="netdev")
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1", "2001:db8:2::1"), ("192.0.2.1",), 1400)
OUTSIDE, NODES = ("192.0.2.10", "2001:db8:2::10"), ("192.0.2.1", "2001:db8:2::1")
WEB = ("10.10.0.7", "fd00:10::7")
SERVER = """
import socket, threading
tcp = socket.create_server(("::", 8099), family=socket.AF_INET6, dualstack_ipv6=True)
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.bind(("::", 8099))
print("listening", flush=True)
def echo():
    while True:
        data, peer = udp.recvfrom(99)
        udp.sendto(data, peer)
threading.Thread(target=echo, daemon=True).start()
while True:
    tcp.accept()[0].close()
"""
CLIENT = """
import errno, socket, sys
address, kind = sys.argv[1], getattr(socket, sys.argv[2])
with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as client:
    client.settimeout(4)
    try:
        client.connect((address, 8099))
        if kind == socket.SOCK_DGRAM:
            client.send(b"hello")
            client.recv(99)
        print("answered")
    except OSError as no:
        print(errno.errorcode.get(no.errno, "timeout"))
"""
OPEN = {"SOCK_STREAM": ("answered", "answered"), "SOCK_DGRAM": ("answered", "answered")}
REJECTED = {"SOCK_STREAM": ("ECONNREFUSED", "ECONNREFUSED"), "SOCK_DGRAM": ("EHOSTUNREACH", "EACCES")}
"""In IPv4 and in IPv6; for the sender of a datagram a host is prohibited."""


class Node(SwitchNode):
    """Pods `web` and `near`, a host outside that knows the way to Pods, and the agent as far as policies need it."""

    def start(self) -> None:
        self.start_switch()
        self.log = self.switch.directory / "np.log"
        self.outside = self.netns.make()
        self.cable("eth0", self.outside, [f"{NODES[0]}/24", f"{NODES[1]}/64"])
        self.netns.sh(
            f"ip addr add {OUTSIDE[0]}/24 dev eth0; ip addr add {OUTSIDE[1]}/64 dev eth0 nodad;"
            f"ip route add 10.10.0.0/24 via {NODES[0]}; ip route add fd00:10::/64 via {NODES[1]}",
            self.outside,
        )
        self.facts.put(Transport("eth0", "eth0", self.mac_of("eth0"), 1500, ()))
        self.connect("web", 7)
        self.connect("near", 8)
        self.pods["outside"] = self.outside

    @contextlib.asynccontextmanager
    async def agent(self) -> AsyncIterator[Engine]:
        features = active(())
        pipeline = pipeline_of(features, CONFIG, NODE)
        switch = Path(self.switch.directory, "br-int.mgmt")
        ofctl, packets = Ofctl(switch), SwitchPackets(switch, CONFIG, self.facts, self.log)
        sinks: dict[type, Sink] = dict.fromkeys((Flow, Group), FlowSink(ofctl, pipeline, 1))
        sinks |= {Meter: MeterSink(ofctl)} | dict.fromkeys(KINDS, NetlinkSink())
        sinks |= dict.fromkeys(NFT_KINDS, NftSink())
        engine = Engine(self.facts, [unit for feature in features for unit in feature.units], sinks)
        for row in (CONFIG, NODE, Realised(pipeline)):
            self.facts.put(row)
        async with asyncio.TaskGroup() as tasks:
            runs = (engine.run(), packets.run(), AddressFeed().run(self.facts))
            work = [tasks.create_task(one) for one in runs]
            await self.until(lambda: self.facts.feeds.has(LocalAddress))
            await engine.quiet()
            await packets.connected.wait()
            yield engine
            for task in work:
                task.cancel()

    async def heard(self, client: str, addresses: tuple[str, str]) -> dict[str, tuple[str, ...]]:
        """What a client hears of these addresses, one of each family, by kind of socket."""
        kinds = ("SOCK_STREAM", "SOCK_DGRAM")
        found = await asyncio.gather(
            *(asyncio.to_thread(self._heard, client, ip, kind) for kind in kinds for ip in addresses)
        )
        return {"SOCK_STREAM": tuple(found[:2]), "SOCK_DGRAM": tuple(found[2:])}

    def _heard(self, client: str, address: str, kind: str) -> str:
        words = ["ip", "netns", "exec", self.pods[client], sys.executable, "-c", CLIENT, address, kind]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout.strip()


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    found = Node(netns)
    try:
        found.start()
        yield found
    finally:
        found.switch.stop()


def rejecting(name: str, pod: str, direction: str) -> tuple[SentPolicy, SentAppliedMember]:
    member = cp.GroupMember(pod=cp.PodReference(name=pod, namespace="shop"))
    one = msgspec.structs.replace(rule(direction, ANY, action="Reject"), enable_logging=True)
    return native(name, pod, one), SentAppliedMember(pod, member)


def told(log: Path) -> set[tuple[str, ...]]:
    """Policy, Pod, addresses and protocol of each line."""
    lines = [line.split() for line in log.read_text().splitlines()]
    assert {(line[4], *line[6:7], line[12]) for line in lines} == {("<nil>", "Reject", "8099")}
    return {(line[3].rpartition(":")[2], line[8], f"{line[9]} {line[11]}", line[13]) for line in lines}


async def test_a_client_hears_at_once_that_it_is_rejected_by_rules_of_either_side(node: Node) -> None:
    async with node.agent() as engine:
        with node.serving(node.pods["web"], SERVER), node.serving(node.pods["outside"], SERVER):
            assert await node.heard("near", WEB) == OPEN
            assert await node.heard("outside", WEB) == OPEN
            assert await node.heard("near", OUTSIDE) == OPEN

            inward = rejecting("in", "web", "In")
            for row in inward:
                node.facts.put(row)
            await engine.quiet()
            assert await node.heard("near", WEB) == REJECTED
            assert await node.heard("outside", WEB) == REJECTED
            assert await node.heard("near", OUTSIDE) == OPEN

            node.facts.drop(SentPolicy, inward[0].key)
            for row in rejecting("out", "near", "Out"):
                node.facts.put(row)
            await engine.quiet()
            assert await node.heard("near", WEB) == REJECTED
            assert await node.heard("near", OUTSIDE) == REJECTED
            assert await node.heard("outside", WEB) == OPEN
    ends = {
        *(("in", "shop/web", f"10.10.0.8 {WEB[0]}"), ("in", "shop/web", f"fd00:10::8 {WEB[1]}")),
        *(("in", "shop/web", f"{OUTSIDE[n]} {WEB[n]}") for n in (0, 1)),
        *(("out", "shop/near", f"10.10.0.8 {to[0]}") for to in (WEB, OUTSIDE)),
        *(("out", "shop/near", f"fd00:10::8 {to[1]}") for to in (WEB, OUTSIDE)),
    }
    assert told(node.log) == {(*one, kind) for one in ends for kind in ("TCP", "UDP")}
