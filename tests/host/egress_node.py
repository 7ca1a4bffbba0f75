"""A Node of a test with the agent's units on Egress and their sinks, and a host outside."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from switch_node import SwitchEngine, SwitchNode
from wide_pool import wide_pool

from antrea.agent import unrealized_feed
from antrea.agent.feature_set import active, own_ports, pipeline_of
from antrea.agent.switch.capabilities import most_meters
from antrea.apis.annotation import NodeAnnotation
from antrea.config.agent import AgentConfig
from antrea.facts.egress import AssignedAddress
from antrea.facts.external_ip import AnsweredAddress
from antrea.facts.member import AgentNode, PoolSelector, SilenceReport
from antrea.facts.node import LocalAddress, ThisNode, Transport
from antrea.facts.ovs import OvsPort
from antrea.features.egress.agent.address import AnnounceAddress, RecordAssigned
from antrea.features.egress.agent.address_report import ReportMissing
from antrea.features.egress.agent.duplicate_address import RecordConflict
from antrea.features.egress.agent.gateway_reachability import RecordSilentGateway
from antrea.features.egress.agent.handover import ConfirmAnnounced, RecordUnassigned, ReleaseAddress
from antrea.features.egress.agent.owner import FEATURE as PLACEMENT
from antrea.features.egress.agent.status import RecordAssignmentFailed
from antrea.features.egress.agent.takeover_event import RecordTakeover
from antrea.features.egress.agent_part.graceful_handover import GracefulHandover
from antrea.features.egress.agent_part.part import MissingAddresses
from antrea.features.external_ip_pool.agent_part.duplicate_prober import DuplicateProber
from antrea.features.external_ip_pool.duplicate import ProbeAddress
from antrea.features.external_ip_pool.silence import ReportSilence, found_silent
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.pod_connectivity.tunnel import tunnel_entry
from antrea.features.service_external_ip.agent import AnnounceExternalIP
from antrea.host.carrier import MAX_MARKS
from antrea.host.neighbour_response import NeighbourResponse
from antrea.host.ovs_port import Port
from antrea.host.pod_sysctl import PodSysctl
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.neighbour.announcement import NodeAnnouncer
from antrea.outside.neighbour.responder import NeighbourResponder
from antrea.outside.netlink.entry import KINDS
from antrea.outside.netlink.host_feed import address_feed, link_feed
from antrea.outside.netlink.pod_sysctl_sink import PodSysctlSink
from antrea.outside.netlink.sink import NetlinkSink
from antrea.outside.nftables.sink import KINDS as NFT_KINDS
from antrea.outside.nftables.sink import NftSink
from antrea.outside.ovsdb.client import Ovsdb
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl
from antrea.outside.vswitch.port_sink import PortSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from conftest import Namespaces

    from antrea.config.agent_sections import Egress as EgressSection
    from antrea.engine import Act, Sink

CONFIG = AgentConfig(ovs_datapath_type="netdev")
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/64"), ("192.0.2.1", "2001:db8:2::1"), ("192.0.2.1",), 1400)
OUTSIDE, EGRESS = {4: "192.0.2.10", 6: "2001:db8:2::10"}, {4: "192.0.2.50", 6: "2001:db8:2::50"}
NODES = {4: "192.0.2.1", 6: "2001:db8:2::1"}
PODS = {4: "10.10.0.7", 6: "fd00:10::7"}
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
GATEWAYS = {4: "172.16.181.1", 6: "fd00:181::1"}
FAR = {4: "198.51.100.9", 6: "2001:db8:51::9"}
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

PEER = AgentNode(
    "n2",
    ("192.0.2.2", "2001:db8:2::2"),
    ("192.0.2.2",),
    pod_cidrs=("10.10.1.0/24", "fd00:10:1::/64"),
)


def link() -> socket.socket:
    """All frames of eth0 of the namespace that this is called in."""
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    one.settimeout(30)
    one.bind(("eth0", 0))
    return one


class AnnotationList:
    """Sink of NodeAnnotation: by name."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def apply(self, put: Sequence[NodeAnnotation], drop: Sequence[NodeAnnotation]) -> None:
        self.values |= {one.name: one.value for one in put}

    async def resync(self, entries: Sequence[NodeAnnotation]) -> None:
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing."""


class Node(SwitchNode):
    """OVS, a host outside on eth0, Pods `web` and `plain`, and the agent's units with the sinks that it has."""

    def __init__(self, netns: Namespaces) -> None:
        super().__init__(netns)
        self.outside = netns.make()
        self.peer = ""
        """Namespace to which antrea-tun0 leads, in tests with another Node."""
        self.assigned: list[str] = []
        self.unassigned: list[str] = []
        self.netlink = NetlinkSink()
        self.conflict: list[str] = []
        self.failed: list[str] = []
        self.silent: list[str] = []
        self.annotations = AnnotationList()
        self.answered: list[str] = []
        """External IPs of Services."""

    def start(self) -> None:
        super().start()
        self.cable("eth0", self.outside, [f"{NODES[4]}/24", f"{NODES[6]}/64"])
        self.netns.sh(
            f"ip addr add {OUTSIDE[4]}/24 dev eth0; ip addr add {OUTSIDE[6]}/64 dev eth0 nodad", self.outside
        )
        self.mac = self.mac_of("eth0")
        addresses = (f"{NODES[4]}/24", f"{NODES[6]}/64")
        self.facts.put(Transport("eth0", "eth0", self.mac, 1500, addresses))
        self.facts.put(wide_pool("p"))
        self.facts.synced(PoolSelector)
        for number, name in enumerate(("web", "plain"), 7):
            self.connect(name, number)

    def make_gateway_anew(self) -> None:
        """Under its name and with its MAC, as after its port was removed by hand."""
        before = self.facts.need(OvsPort, "antrea-gw0")
        self.switch.vsctl("del-port", "br-int", "antrea-gw0")
        internal = ("--", "set", "interface", "antrea-gw0", "type=internal")
        self.switch.vsctl("add-port", "br-int", "antrea-gw0", *internal)
        number = self.ofport("antrea-gw0")
        self.netns.sh(f"ip link set antrea-gw0 address {before.mac}")
        self.facts.put(OvsPort("antrea-gw0", "gateway", number, before.mac))
        self.engine.resync(self.netlink)  # as the agent does when it is there again

    def plug_tunnel(self) -> None:
        """The test is the other Node's end of the tunnel, in the namespace `peer`."""
        self.peer = self.netns.make()
        self.cable("antrea-tun0", self.peer)
        self.switch.vsctl("add-port", "br-int", "antrea-tun0")
        number, mac = self.ofport("antrea-tun0"), self.mac_of("antrea-tun0")
        self.facts.put(OvsPort("antrea-tun0", "tunnel", number, mac))
        self.facts.put(PEER)

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
    async def agent(self, *more: str, egress: EgressSection = CONFIG.egress) -> AsyncIterator[None]:
        """`more` are further gates that are on."""
        # the tests say who holds which address
        features = tuple(one for one in active({"Egress", *more}) if one is not PLACEMENT)
        config = msgspec.structs.replace(CONFIG, egress=egress)
        pipeline = pipeline_of(features, config, NODE)
        ofctl = Ofctl(Path(self.switch.directory, "br-int.mgmt"))
        sinks: dict[type, Sink] = dict.fromkeys((Flow, Group), FlowSink(ofctl, pipeline, 1))
        sinks[Meter] = MeterSink(ofctl)
        sinks |= dict.fromkeys(KINDS, self.netlink) | dict.fromkeys(NFT_KINDS, NftSink())
        db = await Ovsdb.connect(self.switch.socket)
        sinks[Port] = PortSink(db, "br-int", ofctl, own_ports())
        sinks[NodeAnnotation] = self.annotations
        sinks[PodSysctl] = pod_sysctls = PodSysctlSink(Path(self.switch.directory, "pod-settings"))
        sinks[NeighbourResponse] = responder = NeighbourResponder()
        announcer = NodeAnnouncer(lambda ip: self.facts.get(LocalAddress, ip) is not None)
        probing = DuplicateProber(NODE.name)
        acts = self._acts(announcer, probing, config)
        units = [unit for feature in features for unit in feature.units]
        if self.peer:  # a cable is in its place
            units = [unit for unit in units if unit.entries is not tunnel_entry]
        engine = SwitchEngine(self.switch, self.facts, units, sinks, acts)
        assert await most_meters(ofctl) > MAX_MARKS
        gates = EnabledGates("agent", frozenset({"Egress", "EgressSeparateSubnet", *more}))
        for row in (config, NODE, gates, RealizedPipeline(pipeline)):
            self.facts.put(row)
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(engine.run()), tasks.create_task(address_feed().run(self.facts))]
            work.append(tasks.create_task(link_feed().run(self.facts)))
            work.append(tasks.create_task(probing.run(self.facts)))
            work.append(tasks.create_task(unrealized_feed.follow(engine, self.facts)))
            await self.until(lambda: self.facts.feeds.has(LocalAddress))
            await engine.quiet()
            self.engine = engine
            yield
            for task in work:
                task.cancel()
            await announcer.close()
            responder.close()
            pod_sysctls.close()
            await db.close()

    def _acts(
        self, announcer: NodeAnnouncer, probing: DuplicateProber, config: AgentConfig
    ) -> dict[type[Act], Callable[[Any], Awaitable[None]]]:
        kube: Any = None  # nobody ends
        moves = GracefulHandover(self.facts, kube, config, NODE.name)
        return {
            AnnounceAddress: announcer.announce,
            RecordAssigned: self.told,
            RecordUnassigned: self.untold,
            ConfirmAnnounced: moves.receive,
            ReleaseAddress: moves.part,
            ProbeAddress: lambda act: probing.probe(self.facts, act),
            RecordConflict: self.conflicts,
            RecordTakeover: self.took,
            ReportMissing: MissingAddresses(self.facts, grace=0.1).wait,
            RecordAssignmentFailed: self.fails,
            AnnounceExternalIP: self.answers,
            RecordSilentGateway: self.silent_gateway,
            ReportSilence: self.report_silence,
        }

    async def told(self, act: RecordAssigned) -> None:
        self.assigned.append(act.ip)
        self.facts.put(AssignedAddress(act.row, act.egress, act.uid, act.ip))

    async def untold(self, act: RecordUnassigned) -> None:
        self.unassigned.append(act.ip)
        self.facts.drop(AssignedAddress, act.address)

    async def conflicts(self, act: RecordConflict) -> None:
        self.conflict.append(act.message)

    async def answers(self, act: AnnounceExternalIP) -> None:
        self.answered.append(act.ip)
        self.facts.put(AnsweredAddress(act.holder, act.ip, here=True))

    async def silent_gateway(self, act: RecordSilentGateway) -> None:
        self.silent.append(act.message)

    async def report_silence(self, _: ReportSilence) -> None:
        """Gossip goes nowhere."""
        self.facts.put(SilenceReport(NODE.name, found_silent(self.facts)))

    async def fails(self, act: RecordAssignmentFailed) -> None:
        self.failed.append(act.message)

    async def took(self, act: RecordTakeover) -> None:
        """Nobody is told of it."""

    async def source(self, pod: str, version: int, to: str = "", seconds: int = 30) -> str:
        """The address that the host outside, or `to`, sees when this Pod connects to it."""
        words = (sys.executable, "-c", CLIENT, to or OUTSIDE[version], str(seconds))
        await asyncio.to_thread(self.switch.revalidate)
        run = await asyncio.create_subprocess_exec(
            *("ip", "netns", "exec", self.pods[pod], *words), stdout=-1, stderr=-1
        )
        out, err = await run.communicate()
        assert run.returncode == 0, err.decode()
        return out.decode().strip()

    async def seen(self) -> dict[tuple[str, int], str]:
        return {(pod, version): await self.source(pod, version) for pod in self.pods for version in (4, 6)}
