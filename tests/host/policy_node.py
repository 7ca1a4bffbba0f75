"""A Node whose agent does what policies need: Pods `web` and `near`, and a host outside that knows the way to Pods."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from netdev_switch import DATAPATH
from switch_node import SwitchEngine, SwitchNode

from antrea.agent.feature_set import active, pipeline_of
from antrea.agent.switch.packet_in import SwitchPackets
from antrea.config.agent import AgentConfig
from antrea.facts.node import LocalAddress, ThisNode, Transport
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.connection_flush import InspectConnections
from antrea.features.network_policy.agent.service import SaveState
from antrea.features.network_policy.agent_part.connection_flush import ConnectionFlusher
from antrea.features.network_policy.agent_part.part import PolicyPackets
from antrea.features.proxy.agent_part.part import ServicePackets
from antrea.openflow.fields import PacketIn
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.log.audit_log import AuditLog
from antrea.outside.netlink.entry import KINDS
from antrea.outside.netlink.host_feed import address_feed
from antrea.outside.netlink.sink import NetlinkSink
from antrea.outside.nftables.sink import KINDS as NFT_KINDS
from antrea.outside.nftables.sink import NftSink
from antrea.outside.vswitch.appctl import Tracer
from antrea.outside.vswitch.conntrack import Conntrack
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from antrea.engine import Act, Engine, Sink

    Doing = Callable[[Any], Awaitable[None]]

CONFIG = AgentConfig(ovs_datapath_type=DATAPATH)
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
"""Answers to TCP and UDP at port 8099, in both families."""
CLIENT = """
import errno, socket, sys
address, kind, port = sys.argv[1], getattr(socket, sys.argv[2]), int(sys.argv[3])
with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as client:
    client.settimeout(float(sys.argv[4]))
    try:
        client.connect((address, port))
        if kind == socket.SOCK_DGRAM:
            client.send(b"hello")
            client.recv(99)
        print("answered")
    except OSError as no:
        print(errno.errorcode.get(no.errno, "timeout"))
"""
"""Says `answered`, or the name of what the kernel tells."""


NO_SINKS: Mapping[type, Sink] = MappingProxyType({})
NO_ACTS: Mapping[type[Act], Doing] = MappingProxyType({})


async def _forget(_: object) -> None:
    """No start comes after this one."""


class PolicyNode(SwitchNode):
    """Its parts are real; rows are written by the test."""

    def start(self) -> None:
        super().start()
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

    def hears(self, client: str, ip: str, kind: str, *, port: int = 8099, seconds: float = 30) -> str:
        """What a Pod, or `outside`, hears of an address by this kind of socket."""
        words = ["ip", "netns", "exec", self.pods[client], sys.executable, "-c", CLIENT]
        asked = [*words, ip, kind, str(port), str(seconds)]
        self.switch.revalidate()
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    @contextlib.asynccontextmanager
    async def agent(
        self,
        config: AgentConfig = CONFIG,
        *gates: str,
        sinks: Mapping[type, Sink] = NO_SINKS,
        more: Mapping[type[Act], Doing] = NO_ACTS,
    ) -> AsyncIterator[Engine]:
        """`gates` are those that are on; `sinks` and `more` acts come beside those of policies."""
        features = active(gates)
        pipeline = pipeline_of(features, config, NODE)
        switch = Path(self.switch.directory, "br-int.mgmt")
        ofctl, packets = Ofctl(switch), SwitchPackets(switch, config)
        audit = AuditLog(self.log, config.audit_logging)
        policies, services = (
            PolicyPackets(self.facts, packets.send, audit),
            ServicePackets(self.facts, packets.send),
        )
        self.policies = policies
        packets.deliver({PacketIn.NETWORK_POLICY: policies.handle, PacketIn.SVC_REJECT: services.handle})
        own: dict[type, Sink] = dict.fromkeys((Flow, Group), FlowSink(ofctl, pipeline, 1))
        own |= {Meter: MeterSink(ofctl)} | dict.fromkeys(KINDS, NetlinkSink())
        own |= dict.fromkeys(NFT_KINDS, NftSink())
        own |= sinks
        cutting = ConnectionFlusher(
            self.facts,
            "antrea-gw0",
            Conntrack(directory := self.switch.directory),
            Tracer(directory, "br-int"),
            directory / "severed",
        )
        units = [unit for feature in features for unit in feature.units]
        acts: dict[type[Act], Doing] = {
            InspectConnections: lambda look: cutting.flush(engine, look),
            SaveState: _forget,
            **more,
        }
        engine = SwitchEngine(self.switch, self.facts, units, own, acts)
        for row in (config, NODE, RealizedPipeline(pipeline), EnabledGates("agent", frozenset(gates))):
            self.facts.put(row)
        async with asyncio.TaskGroup() as tasks:
            runs = (engine.run(), packets.run(), audit.run(), address_feed().run(self.facts))
            work = [tasks.create_task(one) for one in runs]
            await self.until(lambda: self.facts.feeds.has(LocalAddress))
            await engine.quiet()
            await packets.connected.wait()
            yield engine
            for task in work:
                task.cancel()
