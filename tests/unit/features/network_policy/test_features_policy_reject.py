"""Where the answer to a rejected packet seems to come from, and how it goes, by where its ends are."""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING

import msgspec
import pytest
from policy_world import CONFIG, NODE, PIPELINE, interface

from antrea.engine import Facts
from antrea.facts.node import PeerNode, Transport
from antrea.facts.ovs import OvsPort
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.pod_connectivity.rejection import rejection
from antrea.openflow.fields import EP_SELECTED_REG_MARK, SVC_NO_EP_REG_MARK
from antrea.openflow.fields import GENERATED_REJECT_PACKET_OUT_REG_MARK as GENERATED
from antrea.openflow.match import LOCAL_PORT
from antrea.openflow.packet import TCP, UDP, packet
from antrea.openflow.packet_in import PacketIn
from antrea.openflow.packet_out import TABLE_PORT, PacketOut

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

GATEWAY = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:02")
TUNNEL = OvsPort("antrea-tun0", "tunnel", 1, "0a:00:00:00:00:01")
WEB, DB = "10.10.0.7", "10.10.0.8"
FAR, HOST = "10.10.1.5", "10.10.0.1"
L3 = PIPELINE.id("L3Forwarding")


def rejected(
    client: str,
    server: str,
    in_port: int,
    *,
    mark: int = 0,
    tunnel: bool = True,
    chosen: int = 0,
    kind: int = TCP,
    rows: tuple[Fact, ...] = (),
) -> PacketOut | None:
    """What becomes of a SYN, or of a datagram; the addresses of its frame carry marks and mean nothing."""
    facts = Facts()
    for row in (CONFIG, NODE, RealizedPipeline(PIPELINE), GATEWAY, interface("web", 7), interface("db", 8)):
        facts.put(row)
    for row in (*rows, *((TUNNEL,) if tunnel else ())):
        facts.put(row)
    first = struct.pack("!HHIIBBHHH", 4000, 80, 1, 0, 0x50, 2, 0, 0, 0)
    ends = [ip_address(ip).packed for ip in (client, server)]
    if ":" in client:
        text = b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, 20, kind, 64) + b"".join(ends) + first
    else:
        text = b"\x08\x00" + struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, kind, 0) + b"".join(ends) + first
    found = PacketIn(b"\x01\x02", 1, in_port, {0: mark, 4: chosen}, b"\xee" * 12 + text)
    return rejection(facts, found, packet(found.frame))


CASES = {
    "both are Pods of this Node": (WEB, DB, 7, (8, 7, None), (8, 7)),
    "in IPv6": ("fd00:10::7", "fd00:10::8", 7, (8, 7, None), (8, 7)),
    "the server is of another Node": (WEB, FAR, 7, (2, 7, None), (2, 7)),
    "the server is outside": (WEB, "192.0.2.9", 7, (2, 7, None), (2, 7)),
    "the server is the Node": (WEB, HOST, 7, (2, 7, None), (2, 7)),
    "the client is of another Node": (FAR, WEB, 1, (7, TABLE_PORT, L3), (7, 2)),
    "the client is outside": ("192.0.2.9", WEB, 2, (7, TABLE_PORT, L3), (7, 2)),
    "the client is the Node": (HOST, WEB, 2, (7, 2, None), (7, 2)),
    "a host outside asks for a Service without Endpoint": (
        "192.0.2.10",
        "169.254.0.252",
        2,
        (LOCAL_PORT, 2, None),
        (2, 2),
    ),
    "kube-proxy chose a Pod of this Node": (WEB, DB, 2, (8, 2, None), (8, 2)),
    "kube-proxy chose one of another": (WEB, FAR, 2, (1, 2, None), (2, 2)),
}


@pytest.mark.parametrize(("client", "server", "in_port", "way", "macs"), CASES.values(), ids=CASES.keys())
def test_an_answer_goes_as_if_its_destination_gave_it(
    client: str, server: str, in_port: int, way: tuple[int, int, int | None], macs: tuple[int, int]
) -> None:
    found = rejected(client, server, in_port)
    assert found
    assert (found.in_port, found.out_port, found.table) == way
    assert found.marks == (GENERATED,)
    read = packet(found.frame)
    assert (read.source, read.destination, read.ports) == (server, client, (80, 4000))
    assert (read.source_mac[-1], read.destination_mac[-1]) == macs


BALANCED = EP_SELECTED_REG_MARK.value << EP_SELECTED_REG_MARK.field.lo


@pytest.mark.parametrize(
    ("client", "server", "in_port", "port"),
    [
        (WEB, DB, 7, 8),
        (WEB, WEB, 7, 7),
        (WEB, FAR, 7, 2),
        (WEB, "192.0.2.9", 7, 2),
        (HOST, WEB, 2, 7),
        ("192.0.2.9", WEB, 2, 7),
    ],
    ids=["same Node", "itself", "another Node", "outside", "the Node asks", "somebody outside asks"],
)
def test_who_has_asked_a_service_of_antrea_proxy_is_answered_through_connection_tracking(
    client: str, server: str, in_port: int, port: int
) -> None:
    """By the whole pipeline: an answer from the Endpoint's own address is none to the client."""
    found = rejected(client, server, in_port, chosen=BALANCED)
    assert found
    assert (found.in_port, found.out_port, found.table) == (port, TABLE_PORT, None)
    unbalanced = rejected(client, server, in_port, chosen=BALANCED, mark=SVC_NO_EP_REG_MARK.field.mask)
    assert unbalanced == rejected(client, server, in_port)


@pytest.mark.parametrize(
    ("ends", "unserved", "prohibited"),
    [((WEB, "10.96.0.10"), "0303", "030a"), (("fd00:10::7", "fd00:96::a"), "0104", "0101")],
    ids=["IPv4", "IPv6"],
)
def test_a_datagram_to_a_service_without_endpoint_finds_its_port_unreachable(
    ends: tuple[str, str], unserved: str, prohibited: str
) -> None:
    """As with kube-proxy, and as upstream only where a policy rejects it."""
    for mark, head in ((SVC_NO_EP_REG_MARK.field.mask, unserved), (0, prohibited)):
        found = rejected(*ends, 7, mark=mark, kind=UDP)
        assert found
        assert packet(found.frame).payload[:2].hex() == head


def test_without_a_tunnel_the_answer_of_another_nodes_pod_goes_back_to_the_gateway() -> None:
    """As if the bridge sent it: the switch sends nothing to the port that it came from."""
    found = rejected(WEB, FAR, 2, tunnel=False)
    assert found
    assert (found.in_port, found.out_port) == (LOCAL_PORT, 2)


@pytest.mark.parametrize(
    ("network", "ends"), [("192.0.2.1/24", (LOCAL_PORT, 2)), ("198.51.100.1/24", (1, 2))]
)
def test_in_mode_hybrid_the_answer_goes_back_where_the_pod_of_another_node_is(
    network: str, ends: tuple[int, int]
) -> None:
    config = msgspec.structs.replace(CONFIG, traffic_encap_mode="hybrid")
    card = Transport("eth1", "eth1", "0a:00:00:00:00:09", 1500, (network,))
    peer = PeerNode("n2", ("10.10.1.0/24",), ("192.0.2.2",), ("192.0.2.2",))
    found = rejected(WEB, FAR, 2, rows=(config, card, peer))
    assert found
    assert (found.in_port, found.out_port) == ends


def test_there_is_no_answer_between_strangers_and_none_to_an_answer() -> None:
    assert rejected(FAR, "192.0.2.9", 1) is None
    assert rejected(WEB, DB, 7, mark=GENERATED.field.mask) is None
