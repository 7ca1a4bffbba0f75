"""Each observation of a traced packet has the table and the flow of a real switch that decided it, and a reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from agent_context import agent_context
from policy_switch import GATEWAY, TUNNEL
from proxy_switch import CONFIG
from test_ovs_traceflow_steered import steer
from traced_node import (
    ALLOWING,
    CLOSED,
    CLUSTER,
    DB,
    DENYING,
    FAR,
    OUTSIDE,
    PODS,
    REFUSING,
    TAG,
    WEB,
    Node,
    inject,
    trace,
    traced_node,
)

from antrea.apis.core import Service
from antrea.features.traceflow.agent import ABOVE_EGRESS
from antrea.features.traceflow.agent_part.part import TraceflowPart
from antrea.openflow.fields import PacketIn as Category
from antrea.openflow.frame import Headers, frame
from antrea.openflow.packet import TCP
from antrea.openflow.packet_out import PacketOut
from antrea.openflow.priority import Priority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ovs_bridge import OvsBridge

    from antrea.apis.crd.traceflow import Observation

SERVICE = msgspec.convert({"spec": {"clusterIPs": list(CLUSTER), "ports": [{"port": 80}]}}, Service)


@pytest.fixture
async def node(ovs: OvsBridge) -> AsyncIterator[Node]:
    async with traced_node(ovs) as made:
        yield made


def packets_of(node: Node, text: str) -> list[int]:
    """Packets that the flows of the switch with this table, priority and match have applied to: of one flow, or none."""
    node.bridge.appctl("revalidator/purge")
    table, _, terms = text.partition(" actions=")[0].partition(",")
    number = node.pipeline.id(table.removeprefix("table="))
    terms = re.sub(r"xxreg3=0x(\w+)", lambda found: _words(int(found[1], 16)), terms)
    lines = node.bridge.ofctl("dump-flows", f"table={number}").splitlines()
    found = (re.search(r"n_packets=(\d+),.*?(priority=\S+) actions", line) for line in lines)
    return [int(got[1]) for got in found if got and sorted(got[2].split(",")) == sorted(terms.split(","))]


def _words(value: int) -> str:
    """As ovs-ofctl prints a register of 128 bits."""
    words = (value >> shift & 0xFFFFFFFF for shift in (96, 64, 32, 0))
    return ",".join(f"reg{12 + place}={word and hex(word)}" for place, word in enumerate(words))


def of_the_trace(flow: str) -> str:
    """The flow that does the same with the packet of the trace, and is not counted for the Egress."""
    match = flow.partition(" actions=")[0]
    return (
        match.replace(f"priority={Priority.NORMAL}", f"priority={Priority.NORMAL + ABOVE_EGRESS}")
        + f",nw_tos={TAG << 2}"
    )


async def met(node: Node, seen: tuple[Observation, ...]) -> None:
    """Every observation has a flow that the switch has, and that has applied to the one packet.

    The flows of the trace itself stand above those by which packets leave or are dropped, and above those of an Egress.
    """
    for one in seen:
        assert one.flow.startswith(f"table={one.table},priority="), one
        ends = one.table == "Output" or (one.action == "Dropped" and "conj_id" not in one.flow)
        own = of_the_trace(one.flow) if one.component == "Egress" else ""
        assert packets_of(node, one.flow) == [0 if ends or own else 1], one
        assert not own or packets_of(node, own) == [1], own


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize(
    ("pod", "table", "match", "why"),
    [
        (
            *(CLOSED, "IngressDefaultRule", "priority=200,reg1=0xa "),
            "a NetworkPolicy isolates the Pod that receives it, and no rule allows it",
        ),
        (
            *(DENYING, "AntreaPolicyIngressRule", "conj_id="),
            "rule rule-drop of AntreaClusterNetworkPolicy:deny with action Drop selects it as received, at priority ",
        ),
        (
            *(REFUSING, "AntreaPolicyIngressRule", "conj_id="),
            "rule rule-reject of AntreaClusterNetworkPolicy:refuse with action Reject selects it as received, at priority ",
        ),
        (
            *(ALLOWING, "AntreaPolicyIngressRule", "conj_id="),
            "rule rule-allow of AntreaClusterNetworkPolicy:allow with action Allow selects it as received, at priority ",
        ),
    ],
)
async def test_what_a_policy_decides_has_its_flow_and_its_rule(
    node: Node, six: bool, pod: Any, table: str, match: str, why: str
) -> None:
    found = trace(six=six, destination={"ip": pod.ips[six]})
    seen = node.detailed(found, await inject(node, found))
    first = seen[0]
    assert (first.table, first.explanation) == ("SpoofGuard", f"{WEB.ips[six]} is an address of Pod a/web")
    assert f"in_port={WEB.ofport},dl_src={WEB.mac}" in first.flow
    decided = next(one for one in seen if one.component == "NetworkPolicy")
    assert decided.table == table
    assert decided.flow.startswith(f"table={table},priority=")
    assert match in decided.flow
    assert decided.explanation.startswith(why)
    await met(node, seen)


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
async def test_a_service_has_the_flow_of_its_endpoint(node: Node, six: bool) -> None:
    found = trace(six=six, protocol="tcp", destination={"service": "svc"})
    seen = node.detailed(found, await inject(node, found, SERVICE))
    _, balanced, last = seen
    assert balanced.table == "EndpointDNAT"
    assert balanced.explanation.endswith(" is the Endpoint of Service a/svc that AntreaProxy chose")
    assert last.explanation == f"it leaves by port {DB.name} of Pod a/db"
    await met(node, seen)


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("pod", ["out", "db"])
async def test_an_egress_has_its_flow(node: Node, six: bool, pod: str) -> None:
    found = trace(six=six, source=pod, destination={"ip": OUTSIDE[six]})
    seen = node.detailed(found, await inject(node, found))
    egress = next(one for one in seen if one.component == "Egress")
    name, at = (f"here{six:d}", "n1") if pod == "out" else (f"away{six:d}", "n2")
    assert egress.table == "EgressMark"
    assert f"in_port={next(one.ofport for one in PODS if one.pod_name == pod)}" in egress.flow
    assert (
        egress.explanation
        == f"Egress {name} selects the Pod, and Node {at} has its address {egress.egress_ip}"
    )
    await met(node, seen)


@pytest.mark.parametrize("there", [True, False], ids=["there", "missing"])
@pytest.mark.parametrize("redirects", [True, False], ids=["redirect", "mirror"])
async def test_a_traffic_control_has_its_flow(node: Node, redirects: bool, there: bool) -> None:
    steer(node, redirects=redirects, there=there)
    found = trace(six=False, destination={"ip": FAR[0]})
    seen = node.detailed(found, await inject(node, found))
    named = [one for one in seen if one.component == "TrafficControl"]
    if not there and not redirects:
        assert named == []
        return
    assert [one.table for one in named] == ["TrafficControl"]
    assert f"in_port={WEB.ofport}" in named[0].flow
    word = "it goes to tap0" if redirects else "a copy goes to tap0"
    assert named[0].explanation == (
        f"TrafficControl ids selects the Pod: {word}"
        if there
        else "TrafficControl ids selects the Pod and redirects, and tap0 is missing"
    )
    await met(node, seen)


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
async def test_what_comes_from_another_node_has_its_flows(node: Node, six: bool) -> None:
    found = trace(six=six, source="elsewhere", destination={"ip": DB.ips[six]})
    await node.start(found)
    headers = Headers(
        source=FAR[six], destination=DB.ips[six], source_mac=GATEWAY.mac, destination_mac="aa:bb:cc:dd:ee:ff",
        protocol=TCP, source_port=43000, destination_port=80, dscp=TAG,
    )  # fmt: skip
    node.packets.send(PacketOut(frame(headers), TUNNEL.ofport))
    (told,) = await node.told()
    seen = node.detailed(found, told)
    assert [(one.component, one.action, one.table) for one in seen] == [
        ("Forwarding", "Received", "Classifier"),
        ("Forwarding", "Delivered", "Output"),
    ]
    assert seen[0].explanation == f"it came in by port {TUNNEL.name}, the geneve tunnel"
    await met(node, seen)


async def test_the_agent_writes_the_details_into_the_status(node: Node) -> None:
    found = trace(six=False, destination={"ip": DENYING.ips[0]})
    packet_in = await inject(node, found)
    written: list[Any] = []

    class Status:
        async def get(self, path: str, kind: Any) -> Any:
            return msgspec.convert({"metadata": {"uid": "u"}, "status": {"phase": "Running"}}, kind)

        async def patch(self, path: str, body: Any) -> None:
            written.append(body["status"])

    running: list[Any] = []
    context = agent_context(node.facts, CONFIG, kube=Status(), begin=lambda work, _: running.append(work))
    context.engine = lambda: node.engine
    TraceflowPart(context).packet_ins()[Category.TRACEFLOW](packet_in)
    for work in running:
        await work
    (status,) = written
    last = status["results"][0]["observations"][-1]
    assert (last["action"], last["table"]) == ("Dropped", "AntreaPolicyIngressRule")
    assert last["flow"].startswith("table=AntreaPolicyIngressRule,priority=")
    assert last["explanation"].startswith(
        "rule rule-drop of AntreaClusterNetworkPolicy:deny with action Drop"
    )
