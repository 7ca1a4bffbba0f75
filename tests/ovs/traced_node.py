"""The switch of a Node with policies, Services, Egresses and a channel for traced packets, for tests of Traceflow."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from policy_switch import GATEWAY, NODE, TUNNEL
from proxy_switch import CONFIG, NODES, endpoint

from antrea.agent.feature_set import active, pipeline_of
from antrea.apis.crd.traceflow import Observation, TraceflowSpec
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressPod
from antrea.facts.node import LocalAddress
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service as ServiceRow
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.traceflow.agent import SeenTrace
from antrea.features.traceflow.deciding_flow import detailed
from antrea.features.traceflow.observation import TracedPacket, observations
from antrea.features.traceflow.preparation import prepared
from antrea.features.traceflow.trace import RunningTrace
from antrea.features.traffic_control.port import PORT_TYPE
from antrea.openflow.fields import TRACE_INJECTED_REG_MARK
from antrea.openflow.fields import PacketIn as Category
from antrea.openflow.flow import Flow
from antrea.openflow.frame import Headers, frame
from antrea.openflow.group import Group
from antrea.openflow.packet import packet
from antrea.openflow.packet_out import PacketOut
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.ofctl import Ofctl
from antrea.outside.vswitch.packet_channel import Packets
from tests.unit.features.policy_world import ANY, applied, interface, member, native, peer, policy, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ovs_bridge import OvsBridge

    from antrea.apis.core import Pod, Service
    from antrea.facts.fact import Fact
    from antrea.openflow.packet_in import PacketIn

GATES = frozenset({"AntreaPolicy", "AntreaProxy", "Egress", "PacketCapture", "Traceflow", "TrafficControl"})
WEB, DB, OUT = interface("web", 7), interface("db", 8), interface("out", 9)
CLOSED, REFUSING, DENYING, ALLOWING = (
    interface(name, 10 + n) for n, name in enumerate(("closed", "refusing", "denying", "allowing"))
)
PODS = (WEB, DB, OUT, CLOSED, REFUSING, DENYING, ALLOWING)
FAR, OUTSIDE = ("10.10.1.9", "fd00:10:1::9"), ("203.0.113.7", "2001:db8:7::7")
CLUSTER, LOOP = ("10.96.0.10", "fd00:96::a"), ("10.96.0.11", "fd00:96::b")
EGRESS, AWAY = ("198.51.100.1", "2001:db8:6::1"), ("198.51.100.2", "2001:db8:6::2")
SERVICES = [
    ServiceRow(
        "a", name, ips, (("TCP", 80),), port_names=("http",), node_ports=(0,), created="2026-01-01T00:00:00Z"
    )
    for name, ips in (("svc", CLUSTER), ("loop", LOOP))
]
TAG = 11
GATEWAYS = ("10.10.0.1", "fd00:10::1")
TAP, BACK = (
    OvsPort("tap0", PORT_TYPE, 20, "0a:00:00:00:00:20"),
    OvsPort("back0", PORT_TYPE, 21, "0a:00:00:00:00:21"),
)


def rows() -> list[Fact]:
    """Policies, Services and Egresses of the Node."""
    drop, refuse, allow = (
        msgspec.structs.replace(rule("In", ANY, action=action), name=f"rule-{action.lower()}")
        for action in ("Drop", "Reject", "Allow")
    )
    found: list[Fact] = [
        *applied("closed", member("closed")), policy("isolated", "closed", rule("In", peer("nobody"))),
        *applied("denying", member("denying")), native("deny", "denying", drop),
        *applied("refusing", member("refusing")), native("refuse", "refusing", refuse),
        *applied("allowing", member("allowing")), native("allow", "allowing", allow),
        *SERVICES,
    ]  # fmt: skip
    for six in (False, True):
        found += [endpoint(DB.ips[six], service="a/svc"), endpoint(WEB.ips[six], service="a/loop")]
        found += [
            Egress(f"here{six:d}", "u", EGRESS[six], node="n1"), EgressPod(f"here{six:d}", OUT.pod),
            Egress(f"away{six:d}", "u", AWAY[six], node="n2"), EgressPod(f"away{six:d}", DB.pod),
            LocalAddress(EGRESS[six], "eth0"),
        ]  # fmt: skip
    return found


class Node:
    """The switch of a Node with everything on it."""

    def __init__(self, bridge: OvsBridge) -> None:
        self.bridge, self.facts = bridge, Facts()
        features = active(GATES)
        self.pipeline = pipeline_of(features, CONFIG, NODE)
        for pool, low, high in POLICY.ranks:
            self.facts.ids.between(pool, low, high)
        known = (CONFIG, NODE, *NODES, GATEWAY, TUNNEL, RealizedPipeline(self.pipeline))
        for row in (*known, EnabledGates("agent", GATES), *PODS, *rows()):
            self.facts.put(row)
        self.engine = Engine(self.facts, [unit for one in features for unit in one.units])
        self.engine.plan()
        assert not self.engine.errors.standing, self.engine.errors.standing
        bridge.clear()
        bridge.install(self.engine.standing().values(), self.pipeline)
        self.sink = FlowSink(Ofctl(bridge.process.directory / "br-int.mgmt"), self.pipeline, 1)
        self.heard: list[PacketIn] = []
        self.judged: list[PacketIn] = []
        """Sent to the agent by rules of policies, to be answered, logged or recorded."""
        self.packets: Packets

    async def step(self) -> None:
        """Have the switch follow the facts."""
        plan = self.engine.plan()
        assert not self.engine.errors.standing, self.engine.errors.standing
        put, drop = ([one for one in part if isinstance(one, Flow | Group)] for part in (plan.put, plan.drop))
        await self.sink.apply(put, drop)
        self.bridge.appctl("revalidator/wait")

    async def start(self, trace: RunningTrace, target: Pod | Service | None = None) -> Headers:
        """The flows of a trace that begins at `web` or where it says."""
        self.facts.put(trace)
        pod = self.facts.by(type(WEB), "pod", trace.pod)
        row = prepared(self.facts, trace, pod[0], target) if pod else None
        if row is not None:
            self.facts.put(row)
        await self.step()
        return row.headers if row else Headers()

    async def stop(self) -> int:
        """How many flows of traces are left when it is over."""
        self.facts.drop(RunningTrace, "t")
        self.facts.drop(SeenTrace, "t")
        await self.step()
        mask = "cookie=0x70000000000/0xff0000000000"
        found = self.bridge.ofctl("dump-flows", mask)
        return found.count("table=") - found.count(
            "userdata=05"
        )  # by which dropped packets of captures leave

    async def told(self, number: int = 1) -> list[PacketIn]:
        async with asyncio.timeout(30):
            while len(self.heard) < number:  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.01)
        return self.heard

    def observed(self, trace: RunningTrace, found: PacketIn) -> tuple[Observation, ...]:
        return observations(self.facts, TracedPacket(trace, found, packet(found.frame)))

    def detailed(self, trace: RunningTrace, found: PacketIn) -> tuple[Observation, ...]:
        """With table, flow and explanation."""
        traced = TracedPacket(trace, found, packet(found.frame))
        return detailed(
            self.facts,
            traced,
            observations(self.facts, traced),
            lambda keep: self.engine.standing_of(Flow, keep),
        )


@contextlib.asynccontextmanager
async def traced_node(ovs: OvsBridge) -> AsyncIterator[Node]:
    """A Node whose switch has all ports, and who gets traced packets."""
    ports = {port.name: port.ofport for port in (TUNNEL, GATEWAY, TAP, BACK, *PODS)}
    if GATEWAY.name not in ovs.vsctl("list-ports", "br-int").split():
        ovs.add_ports(ports)
    made = Node(ovs)
    made.packets = Packets(Path(ovs.mgmt.removeprefix("unix:")), 1000)
    for category in (Category.TRACEFLOW, Category.PACKET_CAPTURE):
        made.packets.deliver(category, made.heard.append)
    made.packets.deliver(Category.NETWORK_POLICY, made.judged.append)
    running = asyncio.create_task(made.packets.run())
    try:
        async with asyncio.timeout(60):
            await made.packets.connected.wait()
        yield made
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def spec(*, six: bool, source: str = "web", protocol: str = "tcp", **more: Any) -> TraceflowSpec:
    transport = {} if protocol == "icmp" else {protocol: {"dstPort": 80}}
    family: dict[str, Any] = {"ipv6Header": {}} if six else {"ipHeader": {}}
    text = {"source": {"namespace": "a", "pod": source}, "packet": {**family, "transportHeader": transport}}
    return msgspec.convert(text | more, TraceflowSpec)


def trace(*, six: bool, **more: Any) -> RunningTrace:
    return RunningTrace("t", "u", TAG, spec(six=six, **more))


def brief(found: tuple[Observation, ...]) -> list[tuple[str, ...]]:
    """Component, action and what else each observation says, without what differs from run to run."""
    words = ("component_info", "network_policy", "network_policy_rule", "translated_src_ip", "translated_dst_ip", "tunnel_dst_ip", "egress_ip", "egress", "egress_node", "src_pod_ip")  # fmt: skip
    return [
        (one.component, one.action, *filter(None, (getattr(one, word) for word in words))) for one in found
    ]


def sent(six: bool, pod: Any = WEB) -> tuple[str, ...]:
    return ("SpoofGuard", "Forwarded", pod.ips[six])


LEFT = ("Forwarding", "ForwardedOutOfNetwork", "Output")
DELIVERED = ("Forwarding", "Delivered", "Output")


async def inject(node: Node, found: RunningTrace, target: Pod | Service | None = None) -> PacketIn:
    """What comes of the packet that the trace asks for."""
    headers = await node.start(found, target)
    pod = node.facts.by(type(WEB), "pod", found.pod)[0]
    mac = headers.destination_mac or GATEWAY.mac
    headers = msgspec.structs.replace(headers, dscp=TAG, destination_mac=mac, source_port=40000)
    node.packets.send(PacketOut(frame(headers), pod.ofport, (TRACE_INJECTED_REG_MARK,)))
    return (await node.told())[0]


def sent_by(node: Node, pod: Any) -> int:
    """Packets that the switch has sent to this Pod."""
    found = re.search(r"tx pkts=(\d+)", node.bridge.ofctl("dump-ports", pod.name))
    assert found
    return int(found[1])
