"""Packets of Pods through real userspace OVS, the kernel and nftables: whose address a host outside sees, in both families."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from netdev_switch import until
from switch_node import SwitchNode

from antrea.agent.assembly import OWN_PORTS, active, pipeline_of
from antrea.config.agent import AgentConfig
from antrea.engine import Engine
from antrea.facts.egress import Egress, EgressOwner, EgressPod
from antrea.facts.member import PoolSelector
from antrea.facts.node import LocalAddress, ThisNode, Transport
from antrea.facts.ovs import OvsPort
from antrea.features.egress.address import Announce, Assigned
from antrea.features.egress.owner import FEATURE as PLACEMENT
from antrea.features.feature import Realised
from antrea.features.gate import EnabledGates
from antrea.host.carrier import mark_mac
from antrea.host.ovs_port import Port
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.addresses import AddressFeed
from antrea.outside.announcement import NodeAnnouncer
from antrea.outside.netlink import NetlinkSink
from antrea.outside.nft import KINDS as NFT_KINDS
from antrea.outside.nft import NftSink
from antrea.outside.ofctl import FlowSink
from antrea.outside.ofctl_meters import MeterSink
from antrea.outside.ofctl_run import Ofctl
from antrea.outside.ovsdb import Ovsdb
from antrea.outside.ovsdb_sink import PortSink
from antrea.outside.rtnetlink import KINDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from conftest import Namespaces

    from antrea.engine import Act, Sink

CONFIG = AgentConfig(ovs_datapath_type="netdev")
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1", "2001:db8:2::1"), ("192.0.2.1",), 1400)
OUTSIDE, EGRESS = {4: "192.0.2.10", 6: "2001:db8:2::10"}, {4: "192.0.2.50", 6: "2001:db8:2::50"}
NODES = {4: "192.0.2.1", 6: "2001:db8:2::1"}
PORT = 8099
SERVER = """
import socket
server = socket.create_server(("::", 8099), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
while True:
    client, peer = server.accept()
    client.sendall(peer[0].removeprefix("::ffff:").encode())
    client.close()
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 8099), timeout=int(sys.argv[2])) as stream:
    print(stream.recv(99).decode())
"""


class Node(SwitchNode):
    """OVS, a host outside on eth0, Pods `web` and `plain`, and the agent's units with the sinks that it has."""

    def __init__(self, netns: Namespaces) -> None:
        super().__init__(netns)
        self.outside = netns.make()
        self.assigned: list[str] = []

    def start(self) -> None:
        self.start_switch()
        self.cable("eth0", self.outside, [f"{NODES[4]}/24", f"{NODES[6]}/64"])
        self.netns.sh(
            f"ip addr add {OUTSIDE[4]}/24 dev eth0; ip addr add {OUTSIDE[6]}/64 dev eth0 nodad", self.outside
        )
        self.mac = self.mac_of("eth0")
        addresses = (f"{NODES[4]}/24", f"{NODES[6]}/64")
        self.facts.put(Transport("eth0", "eth0", self.mac, 1500, addresses))
        for number, name in enumerate(("web", "plain"), 7):
            self.connect(name, number)

    def plug_vlan(self, vlan: int) -> None:
        """A second card, br-phy on it, and behind a switch with VLANs a router that is in this one."""
        for bridge in ("br-phy", "br-sw"):
            self.switch.vsctl("add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev")
        self.netns.sh("ip link add eth1 type veth peer name sw1; ip link set eth1 up; ip link set sw1 up")
        self.netns.sh("ethtool -K eth1 tx off; ethtool -K sw1 tx off")
        self.switch.vsctl("add-port", "br-phy", "eth1", "--", "add-port", "br-sw", "sw1")
        self.router = self.netns.make()
        self.cable("r0", self.router)
        self.switch.vsctl("add-port", "br-sw", "r0", f"tag={vlan}")
        # a Node has a default route: replies from where no route leads are martians
        self.netns.sh(f"ip link set br-phy up; ip route add default via {OUTSIDE[4]}")
        self.facts.put(Transport("eth1", "br-phy", self.mac_of("br-phy"), 1500, ()))
        for addresses in (GATEWAYS, FAR):
            for ip in addresses.values():
                what = f"{ip}/24 dev eth0" if "." in ip else f"{ip}/64 dev eth0 nodad"
                self.netns.sh(f"ip addr add {what}", self.router)

    @contextlib.asynccontextmanager
    async def agent(self) -> AsyncIterator[None]:
        # the tests say who holds which address
        features = tuple(one for one in active({"Egress"}) if one is not PLACEMENT)
        pipeline = pipeline_of(features, CONFIG, NODE)
        ofctl = Ofctl(Path(self.switch.directory, "br-int.mgmt"))
        sinks: dict[type, Sink] = dict.fromkeys((Flow, Group), FlowSink(ofctl, pipeline, 1))
        sinks[Meter] = MeterSink(ofctl)
        sinks |= dict.fromkeys(KINDS, NetlinkSink())
        sinks |= dict.fromkeys(NFT_KINDS, NftSink())
        db = await Ovsdb.connect(self.switch.socket)
        sinks[Port] = PortSink(db, "br-int", ofctl, OWN_PORTS)
        announcer = NodeAnnouncer(lambda ip: self.facts.get(LocalAddress, ip) is not None)
        acts: dict[type[Act], Callable[[Any], Awaitable[None]]] = {
            Announce: announcer.announce,
            Assigned: self.told,
        }
        engine = Engine(self.facts, [unit for feature in features for unit in feature.units], sinks, acts)
        gates = EnabledGates("agent", frozenset({"Egress", "EgressSeparateSubnet"}))
        for row in (CONFIG, NODE, gates, Realised(pipeline)):
            self.facts.put(row)
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(engine.run()), tasks.create_task(AddressFeed().run(self.facts))]
            await self.until(lambda: self.facts.feeds.has(LocalAddress))
            await engine.quiet()
            self.engine = engine
            yield
            for task in work:
                task.cancel()
            await announcer.close()
            await db.close()

    async def told(self, act: Assigned) -> None:
        self.assigned.append(act.ip)

    async def source(self, pod: str, version: int, to: str = "", seconds: int = 5) -> str:
        """The address that the host outside, or `to`, sees when this Pod connects to it."""
        words = (sys.executable, "-c", CLIENT, to or OUTSIDE[version], str(seconds))
        run = await asyncio.create_subprocess_exec(
            *("ip", "netns", "exec", self.pods[pod], *words), stdout=-1, stderr=-1
        )
        out, err = await run.communicate()
        assert run.returncode == 0, err.decode()
        return out.decode().strip()

    async def seen(self) -> dict[tuple[str, int], str]:
        return {(pod, version): await self.source(pod, version) for pod in self.pods for version in (4, 6)}


@pytest.fixture
def node(netns: Namespaces) -> Iterator[Node]:
    there = Node(netns)
    try:
        there.start()
        with there.serving(there.outside, SERVER):
            yield there
    finally:
        there.switch.stop()


PLAIN = {(pod, version): NODES[version] for pod in ("web", "plain") for version in (4, 6)}


async def test_a_pod_leaves_with_its_egress_ip_as_long_as_the_egress_stands_and_others_with_the_nodes(
    node: Node,
) -> None:
    async with node.agent():
        assert await node.seen() == PLAIN
        for version, ip in EGRESS.items():
            # what the Node sends by itself must not take it, as IPv6 would
            life = "/32 dev eth0" if version == 4 else "/128 dev eth0 nodad preferred_lft 0"
            node.netns.sh(f"ip addr add {ip}{life}")
            node.facts.put(Egress(f"e{version}", f"u{version}", ip))
            node.facts.put(EgressPod(f"e{version}", "shop/web"))
        await node.until(lambda: all(node.facts.get(LocalAddress, ip) for ip in EGRESS.values()))
        await node.engine.quiet()
        assert await node.seen() == PLAIN | {("web", version): ip for version, ip in EGRESS.items()}

        # a packet that is marked for an address which is not (any more) here does not leave with another
        for lost, version in (("egress-snat", 4), ("carried-mark", 6)):
            node.netns.sh(f"nft flush map inet antrea {lost}")
            with pytest.raises(AssertionError, match="TimeoutError"):
                await node.source("web", version, seconds=1)
        assert await node.source("plain", 4) == NODES[4]

        node.facts.drop(EgressPod, "e4 shop/web")
        node.facts.drop(Egress, "e6")
        await node.engine.quiet()
        assert await node.seen() == PLAIN


async def test_addresses_are_known_when_they_come_and_forgotten_when_they_go(node: Node) -> None:
    async with node.agent():
        before = {row.ip for row in node.facts.all(LocalAddress)}
        assert before == {"10.10.0.1", "fd00:10::1", *NODES.values()}
        node.netns.sh(f"ip addr add {EGRESS[4]}/32 dev eth0; ip addr add {EGRESS[6]}/128 dev lo")
        await node.until(
            lambda: {row.ip for row in node.facts.all(LocalAddress)} == before | {*EGRESS.values()}
        )
        assert node.facts.get(LocalAddress, EGRESS[6]) == LocalAddress(EGRESS[6], "lo")
        node.netns.sh(f"ip addr del {EGRESS[6]}/128 dev lo; ip link del eth0")
        left = {"10.10.0.1", "fd00:10::1"}
        await node.until(lambda: {row.ip for row in node.facts.all(LocalAddress)} == left)


async def test_a_node_that_is_to_hold_an_address_of_a_pool_answers_for_it_and_gives_it_back(
    node: Node,
) -> None:
    stale = "; ".join(
        f"ip neigh add {ip} lladdr 02:00:00:00:00:99 dev eth0 nud stale" for ip in EGRESS.values()
    )
    node.netns.sh(stale, node.outside)
    async with node.agent():
        for version, ip in EGRESS.items():
            node.facts.put(Egress(f"e{version}", f"u{version}", ip, pool="p"))
            node.facts.put(EgressPod(f"e{version}", "shop/web"))
            node.facts.put(EgressOwner(f"e{version}", "n1"))
        await node.until(lambda: all(node.facts.get(LocalAddress, ip) for ip in EGRESS.values()))
        await node.engine.quiet()
        assert sorted(node.assigned) == sorted(EGRESS.values())

        def told() -> bool:
            shown = json.loads(node.netns.sh("ip -j neigh show dev eth0", node.outside))
            found = {row["dst"]: row.get("lladdr") for row in shown}
            return all(found.get(ip) == node.mac for ip in EGRESS.values())

        # the host outside believed that another machine has them
        await asyncio.to_thread(until, told, "announcement of both addresses")
        # and one that has heard nothing gets an answer
        node.netns.sh("ip neigh flush all nud all; ip -6 neigh flush all nud all", node.outside)
        assert await node.seen() == PLAIN | {("web", version): ip for version, ip in EGRESS.items()}

        for version in EGRESS:
            node.facts.put(EgressOwner(f"e{version}", "n2"))
        await node.until(lambda: not any(node.facts.get(LocalAddress, ip) for ip in EGRESS.values()))
        for version in EGRESS:
            node.facts.drop(Egress, f"e{version}")
        await node.engine.quiet()
        assert await node.seen() == PLAIN
        assert "antrea-egress0" not in node.switch.ports("br-int")


LISTENER = """
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind(("eth0", 0))
link.settimeout(10)
print("listening", flush=True)
while True:
    frame = link.recv(2000)
    if frame[12:14] == b"\\x08\\x00" and frame[23] == 1 and frame[34] == 8:
        print(frame[6:12].hex(":"), flush=True)
        break
"""


def frame_source(node: Node, sender: str | None) -> str:
    """The source MAC address with which a ping from this namespace reaches Pod `web`."""
    words = ["ip", "netns", "exec", node.pods["web"], sys.executable, "-c", LISTENER]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as listener:
        try:
            assert listener.stdout is not None
            assert listener.stdout.readline() == "listening\n"
            node.netns.sh("ping -c 1 -W 5 10.10.0.7", sender)
            return listener.stdout.readline().strip()
        finally:
            listener.kill()


async def test_ovs_knows_what_a_process_of_the_node_sends_from_what_passes_it(node: Node) -> None:
    node.netns.sh(f"ip route add 10.10.0.0/24 via {NODES[4]}", node.outside)
    async with node.agent():
        mine = await asyncio.to_thread(frame_source, node, None)
        others = await asyncio.to_thread(frame_source, node, node.outside)
        assert (mine, others) == (mark_mac(0x80000000), node.facts.all(OvsPort)[0].mac)
        (probes,) = [
            line
            for line in node.switch.ofctl("dump-flows", "br-int").splitlines()
            if f"dl_src={mark_mac(0x80000000)}" in line and ",ip," in line
        ]
        assert "n_packets=0" not in probes


VLAN_IPS = {4: "172.16.181.40", 6: "fd00:181::40"}
GATEWAYS = {4: "172.16.181.1", 6: "fd00:181::1"}
FAR = {4: "198.51.100.9", 6: "2001:db8:51::9"}


async def test_an_address_of_a_vlan_leaves_tagged_by_its_gateway_and_its_device_goes_with_it(
    node: Node,
) -> None:
    node.plug_vlan(181)
    with node.serving(node.router, SERVER):
        async with node.agent():
            for version, prefix in ((4, 24), (6, 64)):
                pool = f"p{version}"
                node.facts.put(PoolSelector(pool, (), GATEWAYS[version], prefix, 181))
                node.facts.put(Egress(f"e{version}", f"u{version}", VLAN_IPS[version], pool=pool))
                node.facts.put(EgressPod(f"e{version}", "shop/web"))
                node.facts.put(EgressOwner(f"e{version}", "n1"))
            await node.until(lambda: all(node.facts.get(LocalAddress, ip) for ip in VLAN_IPS.values()))
            await node.engine.quiet()
            assert "antrea-ext.181" in node.switch.ports("br-phy")
            assert {v: await node.source("web", v, FAR[v]) for v in (4, 6)} == VLAN_IPS
            assert await node.source("plain", 4) == NODES[4]

            for version in (4, 6):
                node.facts.drop(EgressOwner, f"e{version}")
            await node.until(lambda: not any(node.facts.get(LocalAddress, ip) for ip in VLAN_IPS.values()))
            await node.engine.quiet()
            assert "antrea-ext.181" not in node.switch.ports("br-phy")
            rules = node.netns.sh("ip rule; ip -6 rule")
            assert "lookup 10" not in rules
