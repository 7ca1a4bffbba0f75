"""What a real switch tells of packets that it drops, of a Pod whose packets are captured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from policy_switch import GATEWAY
from traced_node import CLOSED, DB, DENYING, REFUSING, WEB, Node, sent_by, traced_node

from antrea.apis.crd.packet_capture import PacketCaptureSpec
from antrea.features.packet_capture.capture import CaptureProgress, CaptureRequest
from antrea.features.packet_capture.drop import drop_reason
from antrea.features.traffic_control.row import SteeredNamespace, SteeredPod, Steering
from antrea.host.ovs_port import Port
from antrea.openflow.frame import Headers, frame
from antrea.openflow.packet import TCP, packet
from antrea.openflow.packet_out import PacketOut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ovs_bridge import OvsBridge


@pytest.fixture
async def node(ovs: OvsBridge) -> AsyncIterator[Node]:
    async with traced_node(ovs) as made:
        yield made


async def capture(node: Node, pod: str = "web", name: str = "c") -> None:
    spec = {"source": {"pod": {"namespace": "a", "name": pod}}, "captureConfig": {}}
    node.facts.put(CaptureRequest(name, "u", msgspec.convert(spec, PacketCaptureSpec)))
    node.facts.put(CaptureProgress(name, "u", "Started"))
    await node.step()


async def end(node: Node) -> None:
    """Whatever was there for captures is gone with them, but for the way of copies."""
    node.facts.put(CaptureProgress("c", "u", "Complete"))
    await node.step()
    left = node.bridge.ofctl("dump-flows", "cookie=0x70000000000/0xff0000000000")
    assert (left.count("table="), left.count("userdata=05")) == (1, 1)


def send(node: Node, six: bool, to: Any = None, address: str = "", source: str = "", pod: Any = WEB) -> None:
    ends: dict[str, Any] = {"source": source or pod.ips[six], "source_mac": pod.mac, "source_port": 44000}
    ends |= {"destination": address or to.ips[six], "destination_mac": to.mac if to else GATEWAY.mac}
    node.packets.send(
        PacketOut(frame(Headers(**ends, destination_port=80, protocol=TCP)), pod.ofport, ())
    )  # fmt: skip


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize(
    ("to", "reason"),
    [
        (DENYING, "Dropped by AntreaClusterNetworkPolicy:deny, rule rule-drop (table IngressMetric)"),
        (REFUSING, "Rejected by AntreaClusterNetworkPolicy:refuse, rule rule-reject (table IngressMetric)"),
        (CLOSED, "Dropped: a NetworkPolicy isolates the Pod that receives it, and no rule allows it (table IngressDefaultRule)"),
    ],
)  # fmt: skip
async def test_a_packet_that_a_policy_drops_is_told_with_its_rule_and_counted_as_ever(
    node: Node, six: bool, to: Any, reason: str
) -> None:
    await capture(node)
    before = denied(node)
    send(node, six, to)
    (told, *_) = await node.told()
    assert drop_reason(node.facts, told) == reason
    assert packet(told.frame).destination == to.ips[six]
    if to is not CLOSED:
        assert denied(node) == before + 1
    await end(node)


def denied(node: Node) -> int:
    """Packets that the flows of policies have counted before they dropped them."""
    node.bridge.appctl("revalidator/wait")
    lines = node.bridge.ofctl("dump-flows", "cookie=0x20000000000/0xff0000000000").splitlines()
    dropped = [line for line in lines if "reg0=0x400/0x400" in line and line.endswith("actions=drop")]
    assert dropped
    return sum(int(found[1]) for line in dropped if (found := re.search(r"n_packets=(\d+)", line)))


@pytest.mark.parametrize("six", [False, True])
async def test_what_a_captured_pod_receives_is_told_too_and_captures_of_one_pod_share_flows(
    node: Node, six: bool
) -> None:
    await capture(node, "denying")
    await capture(node, "denying", "other")
    send(node, six, DENYING)
    (told, *_) = await node.told()
    assert drop_reason(node.facts, told).startswith("Dropped by AntreaClusterNetworkPolicy:deny")
    node.facts.put(CaptureProgress("other", "u", "Complete"))
    await end(node)


@pytest.mark.parametrize("six", [False, True])
async def test_a_forged_source_and_a_missing_inspection_are_told(node: Node, six: bool) -> None:
    await capture(node)
    send(node, six, DB, source="2001:db8::66" if six else "192.0.2.66")
    told = (await node.told())[-1]
    assert (
        drop_reason(node.facts, told)
        == "Dropped: its source is none of the Pod's addresses (table SpoofGuard)"
    )
    node.facts.put(SteeredNamespace("a", ()))
    for name in ("web", "db"):
        node.facts.put(SteeredPod("a", name, (("app", name),)))
    row = Steering(
        "ids", "u", "2026", (("app", "=", ("web",)),), None, "Egress", True, Port(name="none"), None
    )
    node.facts.put(row)
    await node.step()
    send(node, six, DB)
    told = (await node.told(2))[-1]
    wanted = "Dropped: TrafficControl ids redirects it, and the target port is missing (table TrafficControl)"
    assert drop_reason(node.facts, told) == wanted
    await end(node)


@pytest.mark.parametrize("six", [False, True])
async def test_packets_that_are_not_dropped_are_not_told(node: Node, six: bool) -> None:
    await capture(node)
    before = sent_by(node, DB)
    send(node, six, DB)
    send(node, six, DENYING)
    (told, *_) = await node.told()
    assert packet(told.frame).destination == DENYING.ips[six]
    assert sent_by(node, DB) == before + 1
    await end(node)
