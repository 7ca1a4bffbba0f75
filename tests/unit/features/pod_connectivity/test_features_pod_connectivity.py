"""The flows of Pod connectivity, node routes and the Service hand-over, as text, one family at a time."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from antrea.apis.annotation import NodeAnnotation
from antrea.config.agent import AgentConfig
from antrea.engine import Absent, Facts, Unit
from antrea.facts.fact import Fact
from antrea.facts.member import AgentNode
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.agent_feature import AgentFeature, Families
from antrea.features.node_route.agent import FEATURE as NODE_ROUTE
from antrea.features.node_route.agent import peer_node
from antrea.features.pod_connectivity.agent import FEATURE as POD_CONNECTIVITY
from antrea.features.proxy.agent import KUBE_PROXY as SERVICE
from antrea.openflow.flow import Flow
from antrea.openflow.pipeline import Pipeline

GATEWAY = OvsPort("antrea-gw0", "gateway", 32769, "0a:00:00:00:00:01")
TUNNEL = OvsPort("antrea-tun0", "tunnel", 32768, "0a:00:00:00:00:ff")
CONFIG = AgentConfig(service_cidr="10.96.0.0/16", service_cidr_v6="fec0:10:96::/64")
V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.168.77.100",), ("192.168.77.100",))
V6 = ThisNode("n1", ("fec0:10:10::/80",), ("fec0:192::1",), ("fec0:192::1",))
WEB = PodInterface(
    "web-1a2b3c", "c1", "shop", "web", "0a:00:00:00:00:07", ("10.10.0.7", "fec0:10:10::7"), 7, "u"
)


def canonical(lines: Iterable[str]) -> set[tuple[frozenset[str], str]]:
    """Matches in any order; actions as written."""
    parts = (line.split(" actions=") for line in lines)
    return {(frozenset(match.replace(" ", "").split(",")), actions) for match, actions in parts}


def yielded_by(unit: Unit, facts: Facts, row: Fact) -> list[Any]:
    """What the unit wants; nothing while it needs a row that is absent."""
    try:
        return [*unit.entries(facts, row)]
    except Absent:
        return []


def flows(
    feature: AgentFeature, node: ThisNode, over: Fact, config: AgentConfig = CONFIG
) -> set[tuple[frozenset[str], str]]:
    """What the units of `feature` over the kind of `over` yield, with names of tables."""
    facts = Facts()
    ports = (GATEWAY, TUNNEL) if config is CONFIG else (GATEWAY,)
    for row in (config, node, *ports, over):
        facts.put(row)
    families = Families.of(node.pod_cidrs)
    realized = [t for f in (POD_CONNECTIVITY, SERVICE) for t in f.tables_of(CONFIG, families)]
    pipeline = Pipeline.realize(realized)
    entries = [
        e for unit in feature.units if isinstance(over, unit.over) for e in yielded_by(unit, facts, over)
    ]
    return canonical(entry.named(pipeline) for entry in entries if isinstance(entry, Flow))


INIT_V4 = """
table=ARPSpoofGuard,priority=200,arp,in_port=32769,arp_spa=10.10.0.1,arp_sha=0a:00:00:00:00:01 actions=goto_table:ARPResponder
table=ARPResponder,priority=190,arp actions=NORMAL
table=Classifier,priority=210,ip,in_port=32769,nw_src=10.10.0.1 actions=set_field:0x2/0xf->reg0,set_field:0x10000000/0x10000000->reg4,goto_table:SpoofGuard
table=Classifier,priority=200,in_port=32769 actions=set_field:0x2/0xf->reg0,set_field:0x8000000/0x8000000->reg4,goto_table:SpoofGuard
table=Classifier,priority=200,in_port=32768 actions=set_field:0x1/0xf->reg0,set_field:0x200/0x200->reg0,goto_table:ConntrackZone
table=SpoofGuard,priority=200,ip,in_port=32769 actions=goto_table:ConntrackZone
table=ConntrackZone,priority=200,ip actions=ct(table=ConntrackState,zone=65520,nat)
table=ConntrackState,priority=200,ct_state=+inv+trk,ip actions=drop
table=ConntrackState,priority=190,ct_state=-new+trk,ct_mark=0x0/0x10,ip actions=goto_table:L3Forwarding
table=ConntrackState,priority=190,ct_state=-new+trk,ct_mark=0x10/0x10,ip actions=set_field:0x200/0x200->reg0,goto_table:L3Forwarding
table=ConntrackState,priority=0 actions=goto_table:DNAT
table=L3Forwarding,priority=210,ip,nw_dst=10.10.0.1 actions=set_field:0a:00:00:00:00:01->eth_dst,set_field:0x20/0xf0->reg0,goto_table:L3DecTTL
table=L3Forwarding,priority=210,ct_state=+rpl+trk,ct_mark=0x2/0xf,ip actions=set_field:0a:00:00:00:00:01->eth_dst,set_field:0x20/0xf0->reg0,goto_table:L3DecTTL
table=L3Forwarding,priority=200,ip,reg0=0x0/0x200,nw_dst=10.10.0.0/24 actions=goto_table:L2ForwardingCalc
table=L3Forwarding,priority=0 actions=set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
table=L3DecTTL,priority=210,ip,reg0=0x2/0xf actions=goto_table:L2ForwardingCalc
table=L3DecTTL,priority=200,ip actions=dec_ttl,goto_table:L2ForwardingCalc
table=L2ForwardingCalc,priority=200,dl_dst=0a:00:00:00:00:01 actions=set_field:0x8001->reg1,set_field:0x200000/0x600000->reg0,goto_table:ConntrackCommit
table=L2ForwardingCalc,priority=200,dl_dst=aa:bb:cc:dd:ee:ff actions=set_field:0x8000->reg1,set_field:0x200000/0x600000->reg0,goto_table:ConntrackCommit
table=ConntrackCommit,priority=200,ct_state=+new+trk,ct_mark=0x0/0x20,ip actions=ct(commit,table=Output,zone=65520,exec(move:NXM_NX_REG0[0..3]->NXM_NX_CT_MARK[0..3]))
table=ConntrackCommit,priority=210,ct_state=+new+trk,ct_mark=0x0/0x20,tcp,tcp_flags=-syn actions=ct(commit,table=Output,zone=65520,exec(move:NXM_NX_REG0[0..3]->NXM_NX_CT_MARK[0..3],set_field:0x100/0x100->ct_mark))
table=ConntrackCommit,priority=210,ct_state=+new+trk,ct_mark=0x0/0x20,tcp,tcp_flags=+syn+ack actions=ct(commit,table=Output,zone=65520,exec(move:NXM_NX_REG0[0..3]->NXM_NX_CT_MARK[0..3],set_field:0x100/0x100->ct_mark))
table=Output,priority=200,reg0=0x200000/0x600000 actions=output:NXM_NX_REG1[]
"""
INIT_V6 = """
table=Classifier,priority=200,in_port=32768 actions=set_field:0x1/0xf->reg0,set_field:0x200/0x200->reg0,goto_table:ConntrackZone
table=Classifier,priority=210,ipv6,in_port=32769,ipv6_src=fec0:10:10::1 actions=set_field:0x2/0xf->reg0,set_field:0x10000000/0x10000000->reg4,goto_table:SpoofGuard
table=Classifier,priority=200,in_port=32769 actions=set_field:0x2/0xf->reg0,set_field:0x8000000/0x8000000->reg4,goto_table:SpoofGuard
table=SpoofGuard,priority=200,ipv6,ipv6_src=fe80::/10 actions=goto_table:IPv6
table=SpoofGuard,priority=200,ipv6,in_port=32769 actions=goto_table:IPv6
table=IPv6,priority=200,icmp6,icmp_type=135,icmp_code=0 actions=NORMAL
table=IPv6,priority=200,icmp6,icmp_type=136,icmp_code=0 actions=NORMAL
table=IPv6,priority=200,ipv6,ipv6_dst=ff00::/8 actions=NORMAL
table=ConntrackZone,priority=200,ipv6 actions=ct(table=ConntrackState,zone=65510,nat)
table=ConntrackState,priority=200,ct_state=+inv+trk,ipv6 actions=drop
table=ConntrackState,priority=190,ct_state=-new+trk,ct_mark=0x0/0x10,ipv6 actions=goto_table:L3Forwarding
table=ConntrackState,priority=190,ct_state=-new+trk,ct_mark=0x10/0x10,ipv6 actions=set_field:0x200/0x200->reg0,goto_table:L3Forwarding
table=ConntrackState,priority=0 actions=goto_table:DNAT
table=L3Forwarding,priority=210,ipv6,ipv6_dst=fec0:10:10::1 actions=set_field:0a:00:00:00:00:01->eth_dst,set_field:0x20/0xf0->reg0,goto_table:L3DecTTL
table=L3Forwarding,priority=210,ct_state=+rpl+trk,ct_mark=0x2/0xf,ipv6 actions=set_field:0a:00:00:00:00:01->eth_dst,set_field:0x20/0xf0->reg0,goto_table:L3DecTTL
table=L3Forwarding,priority=200,ipv6,reg0=0x0/0x200,ipv6_dst=fec0:10:10::/80 actions=goto_table:L2ForwardingCalc
table=L3Forwarding,priority=0 actions=set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
table=L3DecTTL,priority=210,ipv6,reg0=0x2/0xf actions=goto_table:L2ForwardingCalc
table=L3DecTTL,priority=200,ipv6 actions=dec_ttl,goto_table:L2ForwardingCalc
table=L2ForwardingCalc,priority=200,dl_dst=0a:00:00:00:00:01 actions=set_field:0x8001->reg1,set_field:0x200000/0x600000->reg0,goto_table:ConntrackCommit
table=L2ForwardingCalc,priority=200,dl_dst=aa:bb:cc:dd:ee:ff actions=set_field:0x8000->reg1,set_field:0x200000/0x600000->reg0,goto_table:ConntrackCommit
table=ConntrackCommit,priority=200,ct_state=+new+trk,ct_mark=0x0/0x20,ipv6 actions=ct(commit,table=Output,zone=65510,exec(move:NXM_NX_REG0[0..3]->NXM_NX_CT_MARK[0..3]))
table=ConntrackCommit,priority=210,ct_state=+new+trk,ct_mark=0x0/0x20,tcp6,tcp_flags=-syn actions=ct(commit,table=Output,zone=65510,exec(move:NXM_NX_REG0[0..3]->NXM_NX_CT_MARK[0..3],set_field:0x100/0x100->ct_mark))
table=ConntrackCommit,priority=210,ct_state=+new+trk,ct_mark=0x0/0x20,tcp6,tcp_flags=+syn+ack actions=ct(commit,table=Output,zone=65510,exec(move:NXM_NX_REG0[0..3]->NXM_NX_CT_MARK[0..3],set_field:0x100/0x100->ct_mark))
table=Output,priority=200,reg0=0x200000/0x600000 actions=output:NXM_NX_REG1[]
"""
POD = """
table=ARPSpoofGuard,priority=200,arp,in_port=7,arp_spa=10.10.0.7,arp_sha=0a:00:00:00:00:07 actions=goto_table:ARPResponder
table=Classifier,priority=190,in_port=7 actions=set_field:0x3/0xf->reg0,set_field:0x10000000/0x10000000->reg4,goto_table:SpoofGuard
table=SpoofGuard,priority=200,ip,in_port=7,dl_src=0a:00:00:00:00:07,nw_src=10.10.0.7 actions=goto_table:ConntrackZone
table=SpoofGuard,priority=200,ipv6,in_port=7,dl_src=0a:00:00:00:00:07,ipv6_src=fec0:10:10::7 actions=goto_table:IPv6
table=L3Forwarding,priority=200,ip,reg0=0x200/0x200,nw_dst=10.10.0.7 actions=set_field:0a:00:00:00:00:01->eth_src,set_field:0a:00:00:00:00:07->eth_dst,goto_table:L3DecTTL
table=L3Forwarding,priority=200,ipv6,reg0=0x200/0x200,ipv6_dst=fec0:10:10::7 actions=set_field:0a:00:00:00:00:01->eth_src,set_field:0a:00:00:00:00:07->eth_dst,goto_table:L3DecTTL
table=L2ForwardingCalc,priority=200,dl_dst=0a:00:00:00:00:07 actions=set_field:0x7->reg1,set_field:0x200000/0x600000->reg0,goto_table:ConntrackCommit
"""
PEER = """
table=ARPResponder,priority=200,arp,arp_tpa=10.10.2.1,arp_op=1 actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:aa:bb:cc:dd:ee:ff->eth_src,set_field:2->arp_op,move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],set_field:aa:bb:cc:dd:ee:ff->arp_sha,move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],set_field:10.10.2.1->arp_spa,IN_PORT
table=L3Forwarding,priority=200,ip,nw_dst=10.10.2.0/24 actions=set_field:0a:00:00:00:00:01->eth_src,set_field:aa:bb:cc:dd:ee:ff->eth_dst,set_field:192.168.1.12->tun_dst,set_field:0x10/0xf0->reg0,goto_table:L3DecTTL
table=L3Forwarding,priority=200,ipv6,ipv6_dst=fec0:10:12::/80 actions=set_field:0a:00:00:00:00:01->eth_src,set_field:aa:bb:cc:dd:ee:ff->eth_dst,set_field:192.168.1.12->tun_dst,set_field:0x10/0xf0->reg0,goto_table:L3DecTTL
"""
TUNNEL_FLOWS = """
table=Classifier,priority=200,in_port=32768 actions=set_field:0x1/0xf->reg0,set_field:0x200/0x200->reg0,goto_table:ConntrackZone
table=L2ForwardingCalc,priority=200,dl_dst=aa:bb:cc:dd:ee:ff actions=set_field:0x8000->reg1,set_field:0x200000/0x600000->reg0,goto_table:ConntrackCommit
"""
ROUTED_PEER = """
table=L3Forwarding,priority=200,ip,nw_dst=10.10.2.0/24 actions=set_field:0a:00:00:00:00:01->eth_dst,set_field:0x20/0xf0->reg0,goto_table:L3DecTTL
table=L3Forwarding,priority=200,ipv6,ipv6_dst=fec0:10:12::/80 actions=set_field:0a:00:00:00:00:01->eth_dst,set_field:0x20/0xf0->reg0,goto_table:L3DecTTL
"""
NO_ENCAP = AgentConfig(traffic_encap_mode="noEncap")
# A Node of the dual-stack cluster: both families in its Pod CIDRs, tunnels over IPv4.
DUAL = ThisNode("n1", (*V4.pod_cidrs, *V6.pod_cidrs), V4.node_ips, V4.transport_ips)
PEER_NODE = PeerNode("n2", ("10.10.2.0/24", "fec0:10:12::/80"), ("192.168.1.12",), ("192.168.1.12",))


@pytest.mark.parametrize(("node", "expected"), [(V4, INIT_V4), (V6, INIT_V6)], ids=["ipv4", "ipv6"])
def test_every_node_has_the_flows_of_upstream_for_its_family(node: ThisNode, expected: str) -> None:
    assert flows(POD_CONNECTIVITY, node, node) == canonical(expected.split("\n")[1:-1])


def test_a_dual_stack_node_has_the_flows_of_both_families() -> None:
    one_by_one = flows(POD_CONNECTIVITY, V4, V4) | flows(POD_CONNECTIVITY, V6, V6)
    assert flows(POD_CONNECTIVITY, DUAL, DUAL) == one_by_one


def test_a_pod_owns_its_addresses_and_is_reached_by_its_port() -> None:
    assert flows(POD_CONNECTIVITY, DUAL, WEB) == canonical(POD.split("\n")[1:-1])


def test_the_pods_of_another_node_are_reached_by_the_tunnel() -> None:
    assert flows(NODE_ROUTE, DUAL, PEER_NODE) == canonical(PEER.split("\n")[1:-1])


def test_without_tunnels_the_pods_of_another_node_are_reached_by_the_host() -> None:
    arp = canonical(PEER.split("\n")[1:2])
    assert flows(NODE_ROUTE, DUAL, PEER_NODE, NO_ENCAP) == arp | canonical(ROUTED_PEER.split("\n")[1:-1])
    dual = msgspec.structs.replace(PEER_NODE, transport_ips=())
    assert flows(NODE_ROUTE, DUAL, dual, NO_ENCAP) == flows(NODE_ROUTE, DUAL, PEER_NODE, NO_ENCAP)
    ours = flows(POD_CONNECTIVITY, DUAL, DUAL, NO_ENCAP)
    assert flows(POD_CONNECTIVITY, DUAL, DUAL) - ours == canonical(TUNNEL_FLOWS.split("\n")[1:-1])


def test_a_peer_without_an_address_in_our_family_gets_no_flows() -> None:
    far = PeerNode("n3", ("10.10.3.0/24",), ("fec0:192::3",), ("fec0:192::3",))
    assert flows(NODE_ROUTE, V4, far) == set()


@pytest.mark.parametrize("node", [V4, V6], ids=["ipv4", "ipv6"])
def test_a_node_of_one_family_has_the_flows_of_a_dual_stack_peer_for_that_family(node: ThisNode) -> None:
    ends = ("192.168.1.12", "fec0:192::12")
    dual = PeerNode("n2", PEER_NODE.pod_cidrs, ends, ends)
    number = 1 if node is V6 else 0
    alike = PeerNode(
        "n2", dual.pod_cidrs[number : number + 1], ends[number : number + 1], ends[number : number + 1]
    )
    assert flows(NODE_ROUTE, node, dual) == flows(NODE_ROUTE, node, alike) != set()


def test_service_addresses_are_left_to_the_host_while_antrea_proxy_is_off() -> None:
    expected = """
table=DNAT,priority=200,ip,nw_dst=10.96.0.0/16 actions=set_field:0x8001->reg1,set_field:0x200000/0x600000->reg0,goto_table:ConntrackCommit
table=DNAT,priority=200,ipv6,ipv6_dst=fec0:10:96::/64 actions=set_field:0x8001->reg1,set_field:0x200000/0x600000->reg0,goto_table:ConntrackCommit
"""
    assert flows(SERVICE, DUAL, DUAL) == canonical(expected.split("\n")[1:-1])


def test_nothing_is_yielded_before_the_gateway_has_its_number() -> None:
    facts = Facts()
    for row in (CONFIG, V4, WEB, PEER_NODE):
        facts.put(row)
    yielded = [
        entry
        for feature in (POD_CONNECTIVITY, NODE_ROUTE, SERVICE)
        for unit in feature.units
        for row in (V4, WEB, PEER_NODE)
        if isinstance(row, unit.over)
        for entry in yielded_by(unit, facts, row)
        if not isinstance(entry, NodeAnnotation)
    ]
    assert yielded == []


def test_every_node_but_this_one_is_a_peer_on_whatever_system() -> None:
    facts = Facts()
    facts.put(V4)
    other = AgentNode(
        "n2", PEER_NODE.node_ips, PEER_NODE.transport_ips, pod_cidrs=PEER_NODE.pod_cidrs, gossips=False
    )
    assert list(peer_node(facts, other)) == [PEER_NODE]
    assert list(peer_node(facts, AgentNode(V4.name, ("192.168.1.11",), ("192.168.1.11",)))) == []
