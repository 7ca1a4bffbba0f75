"""The flows of a Traceflow, and what is to be done at the Node where it begins."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from policy_world import ANY as ANYBODY
from policy_world import CONFIG, NODE, PIPELINE, applied, interface, member, policy, rule

from antrea.apis.crd.traceflow import TraceflowSpec
from antrea.engine import Engine, Facts
from antrea.facts.node import PeerNode, Transport
from antrea.facts.ovs import OvsPort
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.feature import FEATURE as POLICY
from antrea.features.traceflow.agent import FEATURES, InjectPacket, PrepareTrace, SeenTrace
from antrea.features.traceflow.preparation import prepared
from antrea.features.traceflow.trace import RunningTrace
from antrea.openflow.flow import Flow
from antrea.openflow.meter import Meter

if TYPE_CHECKING:
    from antrea.engine import Plan
    from antrea.facts.fact import Fact

WEB, DB = interface("web", 7), interface("db", 8)
GATEWAY = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:01")
TUNNEL = OvsPort("antrea-tun0", "tunnel", 1, "0a:00:00:00:00:02")
SPEC: dict[str, Any] = {"source": {"namespace": "a", "pod": "web"}, "destination": {"ip": "10.10.1.9"}}
TOLD = "meter:257,controller(id=32776,reason=no_match,userdata=00,max_len=65535)"
TO_TUNNEL = TOLD.replace(",", ",output:NXM_NX_REG1[],", 1)
TAG = "nw_tos=44"
LIVE = {"liveTraffic": True}


def trace(**more: Any) -> RunningTrace:
    return RunningTrace("t", "u", 11, msgspec.convert(SPEC | more, TraceflowSpec))


class World:
    """The engine of a Node with two Pods."""

    def __init__(self, *rows: Fact) -> None:
        self.facts = Facts()
        for pool, low, high in POLICY.ranks:
            self.facts.ids.between(pool, low, high)
        for row in (CONFIG, NODE, GATEWAY, TUNNEL, RealizedPipeline(PIPELINE), WEB, DB, *rows):
            self.facts.put(row)
        units = (*POLICY.units, *(unit for feature in FEATURES for unit in feature.units))
        self.engine = Engine(self.facts, units)
        self.first = self.engine.plan()

    def put(self, *rows: Fact) -> Plan:
        for row in rows:
            self.facts.put(row)
        return self.engine.plan()

    def prepare(self, found: RunningTrace) -> Plan:
        return self.put(prepared(self.facts, found, WEB, None))


def texts(plan: Plan, table: str = "") -> list[str]:
    found = [entry.named(PIPELINE) for entry in plan.put if isinstance(entry, Flow)]
    return sorted(line for line in found if line.startswith(f"table={table}"))


def test_without_traces_there_is_a_meter_and_no_flow() -> None:
    world = World()
    assert [entry.id for entry in world.first.put if isinstance(entry, Meter)] == [256, 257]
    assert not [entry for entry in world.first.put if isinstance(entry, Flow) and entry.category == 7]


def test_an_injected_packet_goes_to_the_agent_where_it_leaves() -> None:
    plan = World().put(trace())
    leaves = "reg0=0x200000/0x600000"
    assert texts(plan) == sorted([
        f"table=ConntrackCommit,priority=211,ip,{TAG} actions=goto_table:Output",
        f"table=ConntrackState,priority=191,ip,{TAG} actions=goto_table:EgressRule".replace("EgressRule", "AntreaPolicyEgressRule"),
        f"table=ConntrackState,priority=192,ct_state=+rpl+trk,ip,{TAG} actions=drop",
        (f"table=ConntrackZone,priority=210,ip,reg0=0x3/0x100000f,{TAG}"
        " actions=set_field:0->ip_dscp,ct(table=ConntrackState,zone=65520,nat)"),
        f"table=EgressMetric,priority=202,ip,reg0=0x400/0x400,{TAG} actions={TOLD}",
        f"table=EgressMetric,priority=211,ip,reg0=0x0/0x400,{TAG} actions=goto_table:L3Forwarding",
        f"table=IngressMetric,priority=211,ip,reg0=0x0/0x400,{TAG} actions=goto_table:ConntrackCommit",
        f"table=Output,priority=214,ip,reg0=0x400000/0x600000,{TAG} actions=drop",
        f"table=IngressMetric,priority=202,ip,reg0=0x400/0x400,{TAG} actions={TOLD}",
        f"table=Output,priority=214,ip,{leaves},{TAG} actions={TOLD}",
        f"table=Output,priority=215,ip,{leaves},reg1=0x1,{TAG} actions={TO_TUNNEL}",
        f"table=Output,priority=216,ip,{leaves},reg4=0x800000/0xc00000,{TAG} actions={TOLD},output:NXM_NX_REG9[]",
        f"table=Output,priority=217,ct_mark=0x80/0x80,ip,{leaves},{TAG} actions={TOLD}",
    ])  # fmt: skip
    flows = [entry for entry in plan.put if isinstance(entry, Flow)]
    assert {(flow.category, flow.hard_timeout, flow.object_id) for flow in flows} == {
        (7, 20, zlib.crc32(b"u"))
    }


def routed(**more: Any) -> list[str]:
    """Flows of the table Output without tunnels, beside two other Nodes."""
    world = World(*(PeerNode(f"n{n}", (f"10.10.{n}.0/24", f"fd00:{n}::/80"), (), ()) for n in (1, 2)))
    world.facts.drop(OvsPort, TUNNEL.key)
    return texts(
        world.put(msgspec.structs.replace(CONFIG, traffic_encap_mode="noEncap"), trace(**more)), "Output"
    )


def test_without_tunnels_what_goes_to_pods_of_other_nodes_leaves_by_the_gateway_with_its_tag() -> None:
    leaves, to_node = "reg0=0x200000/0x600000,reg1=0x2", f"actions={TO_TUNNEL}"
    assert [line for line in routed() if "priority=215" in line] == [
        f"table=Output,priority=215,ip,{leaves},nw_dst=10.10.1.0/24,{TAG} {to_node}"
    ]
    outside = routed(destination={"ip": "192.0.2.9"})
    assert len(outside) == 4
    assert not [line for line in outside if "priority=215" in line]
    anywhere = [line for line in routed(**LIVE, destination={}) if "priority=215" in line]
    assert [line.split("nw_dst=")[1].split(",")[0] for line in anywhere] == ["10.10.1.0/24", "10.10.2.0/24"]
    assert all(
        line.endswith("set_field:0->ip_dscp,set_field:0x0->reg1,resubmit(,Output)") for line in anywhere
    )


def test_in_mode_hybrid_a_packet_may_leave_by_the_tunnel_and_to_neighbors_by_the_gateway() -> None:
    card = Transport("eth1", "eth1", "0a:00:00:00:00:09", 1500, ("192.0.2.1/24",))
    ends = {1: "192.0.2.2", 2: "198.51.100.2"}
    peers = (PeerNode(f"n{n}", (f"10.10.{n}.0/24",), (end,), (end,)) for n, end in ends.items())
    world = World(card, *peers)
    plan = world.put(
        msgspec.structs.replace(CONFIG, traffic_encap_mode="hybrid"), trace(**LIVE, destination={})
    )
    to_nodes = [line for line in texts(plan, "Output") if "priority=215" in line]
    assert ["nw_dst=10.10.1.0/24" in line for line in sorted(to_nodes)] == [False, True]
    assert "reg1=0x1," in min(to_nodes)


def test_live_traffic_loses_its_tag_and_goes_on() -> None:
    plan = World().put(trace(**LIVE, timeout=60))
    onward, copies = (
        "set_field:0->ip_dscp,resubmit(,Output)",
        "set_field:0->ip_dscp,set_field:0x0->reg1,resubmit(,Output)",
    )
    found = [line.split(" actions=")[1] for line in texts(plan, "Output")]
    assert sorted(found) == sorted([f"{TO_TUNNEL},{copies}", *[f"{TOLD},{onward}"] * 3])
    assert not texts(plan, "ConntrackState")
    assert {entry.hard_timeout for entry in plan.put if isinstance(entry, Flow)} == {60}


def test_of_what_is_dropped_alone_nothing_else_goes_to_the_agent() -> None:
    plan = World().put(trace(**LIVE, droppedOnly=True))
    assert not [line for line in texts(plan, "Output") if "controller" in line]
    assert len([line for line in texts(plan) if "controller" in line]) == 2


def test_what_isolates_a_pod_sends_what_it_drops_to_the_agent_in_the_family_of_the_trace() -> None:
    closed = policy("p", "g", rule("In", ANYBODY), rule("Out", ANYBODY))
    world = World(*applied("g", member("web")), closed)
    v4 = [
        f"table=EgressDefaultRule,priority=202,ip,reg0=0x0/0x8000,nw_src=10.10.0.7,{TAG} actions={TOLD}",
        f"table=IngressDefaultRule,priority=202,ip,reg0=0x0/0x8000,reg1=0x7,{TAG} actions={TOLD}",
    ]
    plan = world.put(trace())
    assert [*texts(plan, "EgressDefaultRule"), *texts(plan, "IngressDefaultRule")] == v4
    v6 = [line.replace("nw_src=10.10.0.7", "ipv6_src=fd00:10::7").replace(",ip,", ",ipv6,") for line in v4]
    plan = world.put(trace(packet={"ipv6Header": {}}))
    assert [*texts(plan, "EgressDefaultRule"), *texts(plan, "IngressDefaultRule")] == v6


def test_the_node_of_the_source_prepares_the_packet_and_injects_it_once_flows_stand() -> None:
    world, found = World(), trace()
    plan = world.put(found)
    assert plan.acts == [PrepareTrace("u", "u", "t")]
    row = prepared(world.facts, found, WEB, None)
    assert world.put(row).acts == [InjectPacket("u", row, row)]
    assert world.put(msgspec.structs.replace(found, reported=("n1",))).acts == []
    world.facts.drop(RunningTrace, "t")
    gone = world.engine.plan()
    assert len(gone.drop) == 13


def test_another_node_does_neither() -> None:
    elsewhere = World().put(trace(source={"namespace": "a", "pod": "far"}))
    assert elsewhere.acts == []
    assert len(texts(elsewhere)) == 13


@pytest.mark.parametrize(
    ("more", "flow"),
    [
        ({}, "ct_state=+new+trk,ip,in_port=7,nw_dst=10.10.1.9"),
        ({"destination": {}}, "ct_state=+new+trk,ip,in_port=7"),
        ({"packet": {"ipHeader": {"protocol": 1}}}, "ct_state=+new+trk,icmp,in_port=7,nw_dst=10.10.1.9"),
        ({"packet": {"ipHeader": {"protocol": 89}}}, "ct_state=+new+trk,ip,in_port=7,nw_dst=10.10.1.9,nw_proto=89"),
        ({"packet": {"transportHeader": {"tcp": {"dstPort": 80}}}}, "ct_state=+new+trk,tcp,in_port=7,nw_dst=10.10.1.9,tp_dst=80"),
        ({"packet": {"transportHeader": {"udp": {"srcPort": 53}}}}, "ct_state=+new+trk,udp,in_port=7,nw_dst=10.10.1.9,tp_src=53"),
        ({"packet": {"ipv6Header": {}, "transportHeader": {"tcp": {}}}, "destination": {"ip": "fd00::9"}}, "ct_state=+new+trk,tcp6,in_port=7,ipv6_dst=fd00::9"),
    ],
)  # fmt: skip
def test_the_first_packet_of_live_traffic_that_matches_gets_the_tag(more: dict[str, Any], flow: str) -> None:
    world, found = World(), trace(**LIVE, **more)
    world.put(found)
    plan = world.prepare(found)
    then = "set_field:11->ip_dscp,goto_table:AntreaPolicyEgressRule"
    assert [entry.named(PIPELINE) for entry in plan.put] == [
        f"table=ConntrackState,priority=190,{flow} actions={then}"
    ]
    assert plan.acts == []


def test_where_only_the_destination_is_named_packets_get_the_tag_as_they_arrive() -> None:
    spec = {"source": {"ip": "192.0.2.7"}, "destination": {"namespace": "a", "pod": "web"}}
    world, found = World(), trace(**LIVE, **spec)
    assert world.put(found).acts == [PrepareTrace("u", "u", "t")]
    then = "set_field:0x7->reg1,set_field:0x200000/0x600000->reg0,set_field:11->ip_dscp,goto_table:IngressSecurityClassifier"
    match = "ct_state=+new+trk,ip,dl_dst=0a:00:00:00:00:07,nw_src=192.0.2.7"
    assert texts(world.prepare(found)) == [f"table=L2ForwardingCalc,priority=210,{match} actions={then}"]


def test_once_a_packet_of_live_traffic_is_traced_all_flows_go() -> None:
    world, found = World(), trace(**LIVE)
    world.put(found)
    world.prepare(found)
    plan = world.put(SeenTrace("t", "u"))
    assert (len(plan.drop), plan.put) == (8, [])
    restarted = World()
    assert restarted.put(msgspec.structs.replace(found, reported=("n1",))).put == []
    again = world.put(msgspec.structs.replace(found, uid="v"))
    assert len(texts(again)) == 7
    assert again.acts == [PrepareTrace("v", "v", "t")]
