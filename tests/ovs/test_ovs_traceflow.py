"""What a real switch tells of traced packets: injected ones and those of live traffic, over all that can happen to them on a Node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from policy_switch import GATEWAY, TUNNEL
from traced_node import (
    ALLOWING,
    AWAY,
    CLOSED,
    CLUSTER,
    DB,
    DELIVERED,
    DENYING,
    EGRESS,
    FAR,
    GATEWAYS,
    LEFT,
    LOOP,
    OUT,
    OUTSIDE,
    REFUSING,
    TAG,
    WEB,
    Node,
    brief,
    inject,
    sent,
    sent_by,
    trace,
    traced_node,
)

from antrea.apis.core import Service
from antrea.apis.crd.traceflow import TraceflowSpec
from antrea.facts.egress import Egress, EgressPortBlock
from antrea.features.traceflow.agent import SeenTrace
from antrea.features.traceflow.observation import captured
from antrea.features.traceflow.trace import RunningTrace
from antrea.openflow.frame import Headers, frame
from antrea.openflow.packet import TCP, UDP, packet
from antrea.openflow.packet_out import PacketOut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ovs_bridge import OvsBridge


@pytest.fixture
async def node(ovs: OvsBridge) -> AsyncIterator[Node]:
    async with traced_node(ovs) as made:
        yield made


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


async def test_a_packet_that_leaves_with_an_egress_ip_tells_the_ports_of_its_pod(node: Node) -> None:
    row = next(row for row in node.facts.by(Egress, "name", "here0"))
    node.facts.put(msgspec.structs.replace(row, survives=True))
    node.facts.put(EgressPortBlock("here0", OUT.pod, 1536, 2047, OUT.ips))
    found = trace(six=False, source="out", destination={"ip": OUTSIDE[False]})
    marked = node.detailed(found, await inject(node, found))[1]
    assert (marked.egress, marked.egress_ports) == ("here0", "1536-2047")
    assert marked.explanation.endswith("; the Pod alone has source ports 1536-2047 of it")
    assert await node.stop() == 0


@pytest.mark.parametrize("six", [False, True])
async def test_a_packet_to_the_node_of_its_egress_ip_tells_which_that_is(node: Node, six: bool) -> None:
    found = trace(six=six, source="db", destination={"ip": OUTSIDE[six]})
    seen = brief(node.observed(found, await inject(node, found)))
    away = ("Egress", "ForwardedToEgressNode", AWAY[six], f"away{six:d}", "n2")
    assert seen == [sent(six, DB), away, ("Forwarding", "Forwarded", "Output", "192.0.2.2")]
    assert await node.stop() == 0


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
