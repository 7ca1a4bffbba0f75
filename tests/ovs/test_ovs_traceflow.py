"""What a real switch tells of traced packets: injected ones and those of live traffic, over all that can happen to them on a Node."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from proxy_switch import CONFIG, NODES, endpoint

from antrea.agent.feature_set import active, pipeline_of
from antrea.apis.core import Pod, Service
from antrea.apis.crd.traceflow import Observation, TraceflowSpec
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressPod
from antrea.facts.node import LocalAddress
from antrea.facts.service import Service as ServiceRow
from antrea.features.framework.agent_feature import RealisedPipeline
from antrea.features.framework.gate import EnabledGates
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.traceflow.agent import SeenTrace
from antrea.features.traceflow.observation import TracedPacket, captured, observations
from antrea.features.traceflow.preparation import prepared
from antrea.features.traceflow.trace import RunningTrace
from antrea.openflow.fields import TRACE_INJECTED_REG_MARK
from antrea.openflow.fields import PacketIn as Category
from antrea.openflow.frame import Headers, frame
from antrea.openflow.packet import TCP, UDP, packet
from antrea.openflow.packet_out import PacketOut
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.ofctl import Ofctl
from antrea.outside.vswitch.packet_channel import Packets
from benchmarks.policy_switch import GATEWAY, NODE, TUNNEL
from tests.unit.features.policy_world import ANY, applied, interface, member, native, peer, policy, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ovs_bridge import OvsBridge

    from antrea.facts.fact import Fact
    from antrea.openflow.packet_in import PacketIn

GATES = frozenset({"AntreaPolicy", "AntreaProxy", "Egress", "Traceflow"})
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
        known = (CONFIG, NODE, *NODES, GATEWAY, TUNNEL, RealisedPipeline(self.pipeline))
        for row in (*known, EnabledGates("agent", GATES), *PODS, *rows()):
            self.facts.put(row)
        self.engine = Engine(self.facts, [unit for one in features for unit in one.units])
        self.engine.plan()
        assert not self.engine.errors.standing, self.engine.errors.standing
        bridge.clear()
        bridge.install(self.engine.standing().values(), self.pipeline)
        self.sink = FlowSink(Ofctl(bridge.process.directory / "br-int.mgmt"), self.pipeline, 1)
        self.heard: list[PacketIn] = []
        self.packets: Packets

    async def step(self) -> None:
        """Have the switch follow the facts."""
        plan = self.engine.plan()
        assert not self.engine.errors.standing, self.engine.errors.standing
        await self.sink.apply(plan.put, plan.drop)
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
        return self.bridge.ofctl("dump-flows", mask).count("table=")

    async def told(self, number: int = 1) -> list[PacketIn]:
        async with asyncio.timeout(30):
            while len(self.heard) < number:  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.01)
        return self.heard

    def observed(self, trace: RunningTrace, found: PacketIn) -> tuple[Observation, ...]:
        return observations(self.facts, TracedPacket(trace, found, packet(found.frame)))


@pytest.fixture
async def node(ovs: OvsBridge) -> AsyncIterator[Node]:
    ports = {TUNNEL.name: TUNNEL.ofport, GATEWAY.name: GATEWAY.ofport} | {
        pod.name: pod.ofport for pod in PODS
    }
    if GATEWAY.name not in ovs.vsctl("list-ports", "br-int").split():
        ovs.add_ports(ports)
    made = Node(ovs)
    made.packets = Packets(Path(ovs.mgmt.removeprefix("unix:")), 1000)
    made.packets.deliver(Category.TRACEFLOW, made.heard.append)
    made.packets.deliver(Category.NETWORK_POLICY, lambda _: None)
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


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize(
    ("protocol", "where"),
    [
        ("icmp", "near"),
        ("tcp", "far"),
        ("udp", "far"),
        ("icmp", "itself"),
        ("udp", "outside"),
        ("tcp", "gateway"),
    ],
)
async def test_an_injected_packet_tells_its_way(node: Node, six: bool, protocol: str, where: str) -> None:
    to = {"near": ALLOWING.ips, "itself": WEB.ips, "far": FAR, "outside": OUTSIDE, "gateway": GATEWAYS}[
        where
    ][six]
    found = trace(six=six, protocol=protocol, destination={"ip": to})
    seen = node.observed(found, await inject(node, found))
    allowed = ("NetworkPolicy", "Forwarded", "IngressRule", "AntreaClusterNetworkPolicy:allow", "rule-allow")
    wanted = {
        "near": [sent(six), allowed, DELIVERED],
        "itself": [sent(six), DELIVERED],
        "far": [sent(six), ("Forwarding", "Forwarded", "Output", "192.0.2.2")],
        "outside": [sent(six), LEFT],
        "gateway": [sent(six), DELIVERED],
    }
    assert brief(seen) == wanted[where]
    assert seen[-1].ttl == (63 if where in ("far", "gateway") else 64)
    assert await node.stop() == 0
    assert len(node.heard) == 1


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize(
    ("pod", "last"),
    [
        (CLOSED, ("NetworkPolicy", "Dropped", "IngressDefaultRule")),
        (DENYING, ("NetworkPolicy", "Dropped", "IngressMetric", "AntreaClusterNetworkPolicy:deny", "rule-drop")),
        (REFUSING, ("NetworkPolicy", "Rejected", "IngressMetric", "AntreaClusterNetworkPolicy:refuse", "rule-reject")),
    ],
)  # fmt: skip
async def test_a_packet_that_a_policy_drops_tells_which_rule_it_was(
    node: Node, six: bool, pod: Any, last: tuple[str, ...]
) -> None:
    found = trace(six=six, destination={"ip": pod.ips[six]})
    assert brief(node.observed(found, await inject(node, found))) == [sent(six), last]
    assert await node.stop() == 0


@pytest.mark.parametrize("six", [False, True])
async def test_a_packet_to_a_service_tells_its_endpoint(node: Node, six: bool) -> None:
    service = msgspec.convert({"spec": {"clusterIPs": list(CLUSTER), "ports": [{"port": 80}]}}, Service)
    found = trace(six=six, protocol="tcp", destination={"service": "svc"})
    seen = brief(node.observed(found, await inject(node, found, service)))
    assert seen == [sent(six), ("LB", "Forwarded", DB.ips[six]), DELIVERED]
    assert await node.stop() == 0


@pytest.mark.parametrize("six", [False, True])
async def test_a_packet_that_comes_back_to_its_pod_by_a_service_tells_both_translations(
    node: Node, six: bool
) -> None:
    service = msgspec.convert({"spec": {"clusterIPs": list(LOOP), "ports": [{"port": 80}]}}, Service)
    found = trace(six=six, protocol="tcp", destination={"service": "loop"})
    seen = brief(node.observed(found, await inject(node, found, service)))
    assert seen == [sent(six), ("LB", "Forwarded", GATEWAYS[six], WEB.ips[six]), DELIVERED]
    assert await node.stop() == 0


@pytest.mark.parametrize("six", [False, True])
async def test_a_packet_that_leaves_with_an_egress_ip_tells_whose(node: Node, six: bool) -> None:
    found = trace(six=six, source="out", destination={"ip": OUTSIDE[six]})
    seen = brief(node.observed(found, await inject(node, found)))
    marked = ("Egress", "MarkedForSNAT", EGRESS[six], f"here{six:d}", "n1")
    assert seen == [sent(six, OUT), marked, LEFT]
    assert await node.stop() == 0


@pytest.mark.parametrize("six", [False, True])
async def test_a_packet_to_the_node_of_its_egress_ip_tells_which_that_is(node: Node, six: bool) -> None:
    found = trace(six=six, source="db", destination={"ip": OUTSIDE[six]})
    seen = brief(node.observed(found, await inject(node, found)))
    away = ("Egress", "ForwardedToEgressNode", AWAY[six], f"away{six:d}", "n2")
    assert seen == [sent(six, DB), away, ("Forwarding", "Forwarded", "Output", "192.0.2.2")]
    assert await node.stop() == 0


def sent_by(node: Node, pod: Any) -> int:
    """Packets that the switch has sent to this Pod."""
    found = re.search(r"tx pkts=(\d+)", node.bridge.ofctl("dump-ports", pod.name))
    assert found
    return int(found[1])


@pytest.mark.parametrize("six", [False, True])
async def test_only_the_first_packet_of_live_traffic_is_traced_and_all_are_delivered(
    node: Node, six: bool
) -> None:
    found = trace(six=six, destination={"ip": DB.ips[six]}, liveTraffic=True)
    await node.start(found)
    before = sent_by(node, DB)
    ends: dict[str, Any] = {
        "source": WEB.ips[six],
        "destination": DB.ips[six],
        "source_mac": WEB.mac,
        "destination_mac": DB.mac,
    }
    wanted = Headers(**ends, protocol=TCP, source_port=41000, destination_port=80)
    other = msgspec.structs.replace(wanted, protocol=UDP)
    for headers in (other, wanted):
        node.packets.send(PacketOut(frame(headers), WEB.ofport))
    (seen,) = await node.told()
    read = packet(seen.frame)
    assert (read.dscp, read.protocol) == (TAG, TCP)
    assert brief(node.observed(found, seen)) == [sent(six), DELIVERED]
    taken = captured(read)
    assert taken.transport_header.tcp is not None
    assert (taken.src_ip, taken.dst_ip, taken.transport_header.tcp.dst_port) == (
        WEB.ips[six],
        DB.ips[six],
        80,
    )
    async with asyncio.timeout(30):
        while sent_by(node, DB) != before + 2:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.01)
    node.facts.put(SeenTrace("t", "u"))
    await node.step()
    node.packets.send(PacketOut(frame(msgspec.structs.replace(wanted, source_port=41001)), WEB.ofport))
    assert await node.stop() == 0
    assert len(node.heard) == 1


@pytest.mark.parametrize("live", [False, True], ids=["injected", "live"])
@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
async def test_a_packet_that_a_pod_tags_itself_is_delivered_and_no_trace(
    node: Node, six: bool, live: bool
) -> None:
    await node.start(trace(six=six, destination={"ip": CLOSED.ips[six]}, liveTraffic=live))
    before = sent_by(node, DB)
    ends: dict[str, Any] = {
        "source": WEB.ips[six],
        "destination": DB.ips[six],
        "source_mac": WEB.mac,
        "destination_mac": DB.mac,
    }
    forged = Headers(**ends, protocol=UDP, source_port=41000, destination_port=80, dscp=TAG)
    for _ in range(2):
        node.packets.send(PacketOut(frame(forged), WEB.ofport))
    async with asyncio.timeout(30):
        while sent_by(node, DB) != before + 2:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.01)
    assert await node.stop() == 0
    assert node.heard == []


@pytest.mark.parametrize("six", [False, True])
async def test_of_what_is_dropped_alone_only_a_dropped_packet_is_told(node: Node, six: bool) -> None:
    found = trace(six=six, destination={}, liveTraffic=True, droppedOnly=True)
    await node.start(found)
    for pod in (DB, DENYING):
        ends: dict[str, Any] = {
            "source": WEB.ips[six],
            "destination": pod.ips[six],
            "source_mac": WEB.mac,
            "destination_mac": pod.mac,
        }
        headers = Headers(**ends, protocol=TCP, source_port=42000, destination_port=80)
        node.packets.send(PacketOut(frame(headers), WEB.ofport))
    (seen,) = await node.told()
    assert brief(node.observed(found, seen))[-1][:3] == ("NetworkPolicy", "Dropped", "IngressMetric")
    assert await node.stop() == 0
    assert len(node.heard) == 1


@pytest.mark.parametrize("six", [False, True])
async def test_where_only_the_receiver_is_named_a_packet_is_told_as_it_arrives(node: Node, six: bool) -> None:
    source = {"source": {"ip": FAR[six]}, "destination": {"namespace": "a", "pod": "db"}}
    found = RunningTrace("t", "u", TAG, msgspec.convert(msgspec.to_builtins(trace(six=six).spec) | source | {"liveTraffic": True}, TraceflowSpec))  # fmt: skip
    await node.start(found)
    ends: dict[str, Any] = {
        "source": FAR[six],
        "destination": DB.ips[six],
        "source_mac": GATEWAY.mac,
        "destination_mac": "aa:bb:cc:dd:ee:ff",
    }
    headers = Headers(**ends, protocol=TCP, source_port=43000, destination_port=80)
    node.packets.send(PacketOut(frame(headers), TUNNEL.ofport))
    (seen,) = await node.told()
    assert brief(node.observed(found, seen)) == [("Forwarding", "Received"), DELIVERED]
    assert await node.stop() == 0
