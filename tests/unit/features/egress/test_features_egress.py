"""Which Pod leaves with which address: flows as text, the host's rules, statuses; and that order of news does not matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wide_pool import wide_pool

from antrea.agent.feature_set import active, pipeline_of
from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import Egress as EgressSection
from antrea.engine import Engine, Facts
from antrea.engine.ids import Record
from antrea.facts.egress import Egress, EgressMark, EgressOwner, EgressPod, ProbedAddress
from antrea.facts.member import GossipMember, Quorum
from antrea.facts.node import LocalAddress, PeerNode, ThisNode, Transport
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.egress.agent.address import AnnounceAddress, RecordAssigned
from antrea.features.egress.agent.feature import FEATURE
from antrea.features.external_ip_pool.agent import FEATURE as POOL_MEMBERS
from antrea.features.external_ip_pool.duplicate import ProbeAddress
from antrea.features.framework.gate import EnabledGates
from antrea.host.address import Address
from antrea.host.carrier import ip_mac, mark_mac, own_mac
from antrea.host.link import Dummy, Link, Vlan
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet
from antrea.host.ovs_port import Port
from antrea.host.route import ProxyNeighbour, Route, RoutingRule
from antrea.host.sysctl import Sysctl
from antrea.openflow.flow import Flow
from antrea.rank import Rank

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.facts.fact import Fact

GATEWAY = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:01")
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/80"), ("192.0.2.1", "fd00:2::1"), ("192.0.2.1",))
PEER = PeerNode("n2", ("10.10.1.0/24", "fd00:10:1::/80"), ("192.0.2.2", "fd00:2::2"), ("198.51.100.2",))
WEB = PodInterface("web", "c1", "shop", "web", "0a:00:00:00:00:07", ("10.10.0.7", "fd00:10::7"), 7, "u1")
CARD = Transport("eth1", "br-phy", "0a:00:00:00:00:02", 1500, ("198.51.100.1/24",))
SYSTEM, NETDEV = AgentConfig(), AgentConfig(ovs_datapath_type="netdev")
HERE, THERE, HERE6, THERE6 = "203.0.113.1", "203.0.113.2", "fd00:9::1", "fd00:9::2"
SAID = Condition(
    "IPAssigned", "True", reason="Assigned", message="EgressIP is successfully assigned to EgressNode"
)


def egress(name: str, ip: str = HERE, created: str = "", **more: Any) -> Egress:
    return Egress(name, f"uid-{name}", ip, created=created, **more)


class Agent:
    """The units of Egress over facts, of one Node that has HERE and HERE6."""

    def __init__(self, config: AgentConfig, *rows: Fact) -> None:
        self.facts = Facts()
        for pool, most in FEATURE.limits:
            self.facts.ids.limit(pool, most)
        self.engine = Engine(self.facts, (*FEATURE.units, *POOL_MEMBERS.units))
        self.pipeline = pipeline_of(active({"Egress"}), config, NODE)
        here = (LocalAddress(ip, "eth0") for ip in (HERE, HERE6))
        for row in (config, NODE, GATEWAY, PEER, WEB, wide_pool("p"), *here, *rows):
            self.facts.put(row)
        self.engine.plan()

    def flows(self, *words: str) -> set[str]:
        """Those that have all of these words."""
        found = (e.named(self.pipeline) for e in self.engine.standing().values() if isinstance(e, Flow))
        return {line for line in found if all(word in line for word in words)}

    def wanted(self, *kinds: type) -> set[object]:
        return {entry for entry in self.engine.standing().values() if isinstance(entry, kinds)}


def lines(text: str) -> set[str]:
    return set(text.strip().split("\n"))


NODE_FLOWS = """
table=L3Forwarding,priority=190,ct_state=-rpl+trk,ip,reg0=0x3/0xf,reg4=0x0/0x100000 actions=goto_table:EgressMark
table=L3Forwarding,priority=190,ct_state=-rpl+trk,ip,reg0=0x1/0xf actions=set_field:0a:00:00:00:00:01->eth_dst,goto_table:EgressMark
table=L3Forwarding,priority=190,ct_state=-rpl+trk,ipv6,reg0=0x3/0xf,reg4=0x0/0x100000 actions=goto_table:EgressMark
table=L3Forwarding,priority=190,ct_state=-rpl+trk,ipv6,reg0=0x1/0xf actions=set_field:0a:00:00:00:00:01->eth_dst,goto_table:EgressMark
table=EgressMark,priority=210,ip,nw_dst=192.0.2.1 actions=set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
table=EgressMark,priority=210,ip,nw_dst=192.0.2.2 actions=set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
table=EgressMark,priority=210,ip,nw_dst=198.18.0.0/15 actions=set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
table=EgressMark,priority=210,ip,nw_dst=10.96.0.0/12 actions=set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
table=EgressMark,priority=210,ipv6,ipv6_dst=fd00:2::1 actions=set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
table=EgressMark,priority=210,ipv6,ipv6_dst=fd00:2::2 actions=set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
table=EgressMark,priority=190,ct_state=+new+trk,ip,reg0=0x1/0xf actions=drop
table=EgressMark,priority=190,ct_state=+new+trk,ipv6,reg0=0x1/0xf actions=drop
table=EgressMark,priority=0 actions=set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
"""


def test_what_leaves_the_cluster_asks_for_its_egress_ip_except_to_nodes_services_and_except_cidrs() -> None:
    config = AgentConfig(egress=EgressSection(except_cidrs=("198.18.0.0/15",)))
    assert Agent(config).flows() == lines(NODE_FLOWS)


LOCAL = """
table=EgressMark,priority=200,ct_state=+trk,ip,in_port=7 actions=set_field:0x1/0xff->pkt_mark,set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
table=EgressMark,priority=200,ct_state=+trk,ip,tun_dst=203.0.113.1 actions=set_field:0x1/0xff->pkt_mark,set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
"""
LOCAL_NETDEV = f"""
table=EgressMark,priority=200,ct_state=+trk,ip,in_port=7 actions=set_field:{mark_mac(1)}->eth_src,set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
table=EgressMark,priority=200,ct_state=+trk,ip,reg0=0x1/0xf,dl_src={ip_mac(HERE)} actions=set_field:{mark_mac(1)}->eth_src,set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
"""


@pytest.mark.parametrize(("config", "expected"), [(SYSTEM, LOCAL), (NETDEV, LOCAL_NETDEV)])
def test_an_address_of_this_node_is_a_mark_for_its_pods_and_for_those_of_other_nodes(
    config: AgentConfig, expected: str
) -> None:
    agent = Agent(config, egress("a"), EgressPod("a", "shop/web"))
    assert agent.flows("EgressMark", "priority=200") == lines(expected)


INSPECTED = """
table=EgressMark,priority=200,ct_state=+trk,ip,reg0=0x7/0xf,nw_src=10.10.0.7 actions=set_field:0x1/0xff->pkt_mark,set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc
"""


def test_what_comes_back_from_the_l7_engine_leaves_with_the_egress_ip_of_its_pod() -> None:
    gates = EnabledGates("agent", frozenset({"L7NetworkPolicy"}))
    agent = Agent(SYSTEM, egress("a"), EgressPod("a", "shop/web"), gates)
    assert agent.flows("EgressMark", "priority=200") == lines(LOCAL) | lines(INSPECTED)
    assert len(agent.flows("L3Forwarding", "reg0=0x7/0xf", "EgressMark")) == 2


REMOTE = """
table=EgressMark,priority=200,ip,in_port=7 actions=set_field:{source}->eth_src,set_field:aa:bb:cc:dd:ee:ff->eth_dst,set_field:{end}->tun_dst,set_field:0x10/0xf0->reg0,set_field:0x80000/0x80000->reg0,goto_table:L2ForwardingCalc
"""


@pytest.mark.parametrize(
    ("config", "node", "source", "end"),
    [
        (SYSTEM, "n2", GATEWAY.mac, THERE),
        (NETDEV, "n2", ip_mac(THERE), "198.51.100.2"),
        (NETDEV, "", ip_mac(THERE), THERE),
    ],
    ids=["mark", "mac", "nobody knows"],
)
def test_an_address_of_another_node_is_reached_by_the_tunnel(
    config: AgentConfig, node: str, source: str, end: str
) -> None:
    agent = Agent(config, egress("a", THERE, node=node), EgressPod("a", "shop/web"))
    assert agent.flows("EgressMark", "priority=200") == lines(REMOTE.format(source=source, end=end))
    assert agent.wanted(NftElement) == set()


def test_whoever_is_to_hold_an_address_of_a_pool_is_asked_before_the_status() -> None:
    held = egress("a", THERE, pool="p", node="n9")
    agent = Agent(NETDEV, held, EgressPod("a", "shop/web"), EgressOwner("a", "n2"))
    assert len(agent.flows("198.51.100.2->tun_dst")) == 1
    agent.facts.put(egress("a", THERE, pool="p", node="n2"))
    agent.facts.put(EgressOwner("a", "", "nobody is known yet"))
    agent.engine.plan()
    assert len(agent.flows("198.51.100.2->tun_dst")) == 1


def test_each_family_follows_its_own_egress_and_of_two_the_oldest() -> None:
    rows = [egress("young", THERE, "2026-01-02"), egress("old", HERE, "2026-01-01"), egress("six", HERE6)]
    agent = Agent(SYSTEM, *rows, *(EgressPod(row.name, "shop/web") for row in rows))
    number = {mark.ip: mark.mark for mark in agent.facts.all(EgressMark)}
    pods = {line.split("->pkt_mark")[0] for line in agent.flows("EgressMark", "in_port=7")}
    assert pods == {
        f"table=EgressMark,priority=200,ct_state=+trk,{family},in_port=7 actions=set_field:{number[ip]:#x}/0xff"
        for family, ip in (("ip", HERE), ("ipv6", HERE6))
    }
    agent.facts.drop(EgressPod, "old shop/web")
    agent.engine.plan()
    assert len(agent.flows("in_port=7", f"{THERE}->tun_dst")) == 1


def test_an_egress_without_an_address_does_nothing_yet() -> None:
    agent = Agent(SYSTEM, egress("a", ""), EgressPod("a", "shop/web"))
    assert agent.flows("priority=200") == agent.wanted(Status) == set()


RULE = 'oifname != "antrea-gw0" meta nfproto ipv4 snat ip to meta mark & 0x000000ff map @egress-snat fully-random'


def test_the_host_translates_by_mark_before_it_falls_back_to_the_nodes_address() -> None:
    config = AgentConfig(snat_fully_random_ports=True)
    agent = Agent(config, egress("a"), egress("b", HERE6), egress("c"))
    number = {mark.ip: f"{mark.mark:#010x}" for mark in agent.facts.all(EgressMark)}
    assert agent.wanted(NftElement) == {
        NftElement(set="egress-snat", value=number[HERE], data=HERE, category=4),
        NftElement(set="egress-snat6", value=number[HERE6], data=HERE6, category=4),
        NftElement(set="egress-unanswered", value=HERE, category=4),
        NftElement(set="egress-unanswered6", value=HERE6, category=4),
    }
    rules = {rule.text: rule.order for rule in agent.wanted(NftRule) if isinstance(rule, NftRule)}
    assert rules[RULE] < NftRule(chain="postrouting", name="", text="").order
    drop = 'iifname "antrea-gw0" oifname != "antrea-gw0" meta mark & 0x000000ff != 0x00000000 drop'
    assert rules[RULE] < rules[drop] < NftRule(chain="postrouting", name="", text="").order
    # and those of answers that no Node tracks, and of connections of another gateway
    assert len(rules) == 21
    chains = {chain.name for chain in agent.wanted(NftChain) if isinstance(chain, NftChain)}
    assert chains == {"egress-input", "egress-prerouting", "egress-ends"}


def test_where_marks_do_not_cross_the_host_reads_them_in_the_source_mac() -> None:
    agent = Agent(NETDEV, egress("a"))
    assert NftElement(
        set="carried-mark", value="02:e9:00:00:00:01", data="0x00000001", category=4
    ) in agent.wanted(NftElement)
    assert NftSet(name="carried-mark", type="ether_addr", data="mark", category=4) in agent.wanted(NftSet)
    text = 'iifname "antrea-gw0" meta mark set ether saddr map @carried-mark'
    assert text in {rule.text for rule in agent.wanted(NftRule) if isinstance(rule, NftRule)}


def test_the_translation_stands_before_packets_are_sent_to_it_and_goes_after_them() -> None:
    agent = Agent(NETDEV)
    agent.facts.put(egress("a"))
    agent.facts.put(EgressPod("a", "shop/web"))
    kinds = [type(entry) for entry in agent.engine.plan().put if isinstance(entry, Flow | NftElement)]
    assert kinds == [NftElement, NftElement, NftElement, Flow, Flow]
    agent.facts.drop(Egress, "a")
    plan = agent.engine.plan()
    assert [type(entry) for entry in plan.drop if isinstance(entry, Flow | NftElement)] == kinds[::-1]
    assert agent.flows("priority=200") == set()


def test_an_address_that_moves_away_turns_its_pods_to_the_tunnel_and_frees_its_mark() -> None:
    agent = Agent(SYSTEM, egress("a"), EgressPod("a", "shop/web"))
    agent.facts.drop(LocalAddress, HERE)
    agent.engine.plan()
    assert len(agent.flows("in_port=7", f"set_field:{HERE}->tun_dst")) == 1
    assert agent.flows(f"tun_dst={HERE}") == set()
    assert agent.facts.ids.standing() == {}


def conditions(agent: Agent) -> dict[str, tuple[Condition, ...]]:
    """What statuses are to say, by Egress."""
    found = (one for one in agent.wanted(Status) if isinstance(one, Status))
    return {one.path.rpartition("/")[2]: one.conditions for one in found}


def test_with_all_marks_in_use_a_pods_packets_are_dropped_and_not_sent_with_the_nodes_address() -> None:
    ips = [f"203.0.113.{number}" for number in range(1, 256)]
    agent = Agent(SYSTEM)
    for ip in (*ips, "203.0.112.1"):
        agent.facts.put(egress(ip, ip))
        agent.facts.put(LocalAddress(ip, "eth0"))
        agent.engine.plan()
    agent.facts.put(EgressPod("203.0.112.1", "shop/web"))
    agent.engine.plan()
    assert agent.flows("in_port=7") == {
        "table=EgressMark,priority=200,ct_state=+trk,ip,in_port=7 actions=drop"
    }
    full = (
        "Failed to assign the IP to EgressNode: Node n1 translates 255 Egress IPs already,"
        " as many as there are marks: its Pods get no packet out"
    )
    failed = Condition("IPAssigned", "False", reason="AssignmentError", message=full)
    assert conditions(agent) == dict.fromkeys(ips, ()) | {"203.0.112.1": (failed,)}
    agent.facts.put(egress("203.0.112.1", "203.0.112.1", failed=True))
    agent.facts.drop(Egress, ips[0])
    for _ in "ab":  # the number is free once what carried it has gone
        agent.engine.plan()
    assert len(agent.flows("in_port=7", "0x1/0xff->pkt_mark")) == 1
    assert conditions(agent)["203.0.112.1"] == (Condition("IPAssigned"),)


def test_the_node_that_has_the_address_says_so() -> None:
    agent = Agent(
        SYSTEM,
        egress("static"),
        egress("remote", THERE),
        egress("mine", pool="p"),
        egress("left", HERE6, pool="p"),
        EgressOwner("mine", "n1"),
        EgressOwner("left", "n2"),
    )

    def said(name: str, *conditions: Condition) -> Status:
        return Status(
            path=f"/apis/crd.antrea.io/v1beta1/egresses/{name}",
            kind="Egress",
            manager="antrea-agent-n1",
            ahead=True,
            fields=(("egressNode", "n1"), ("egressIP", HERE)),
            conditions=conditions,
        )

    assert agent.wanted(Status) == {said("static"), said("mine", SAID)}


def test_if_no_node_can_hold_an_address_one_agent_says_why() -> None:
    left: list[Fact] = [egress("a", THERE, pool="p"), EgressOwner("a", "", "no Node has room")]
    assert Agent(SYSTEM, *left, Quorum(has=False, alive=1, of=3)).wanted(Status) == set()
    left.append(Quorum(has=True, alive=3, of=3))
    why = "Failed to assign the IP to EgressNode: no Node has room"
    failed = Condition("IPAssigned", "False", reason="AssignmentError", message=why)
    alone = Agent(SYSTEM, *left).wanted(Status)
    assert alone == {
        Status(
            path="/apis/crd.antrea.io/v1beta1/egresses/a",
            kind="Egress",
            manager="antrea-agent-n1",
            ahead=True,
            fields=(("egressNode", ""), ("egressIP", "")),
            conditions=(failed,),
        )
    }
    told: list[object] = []
    for name in (nodes := ("n1", "n2", "n3")):
        others = [GossipMember(other, alive=True) for other in nodes if other != name]
        agent = Agent(SYSTEM, *left, *others, msgspec.structs.replace(NODE, name=name))
        told += agent.wanted(Status)
    assert len(told) == 1


def test_a_node_that_is_to_hold_an_address_has_it_and_tells_neighbours_when_it_stands() -> None:
    free = (ProbedAddress("a", THERE), ProbedAddress("b", THERE6))
    agent = Agent(NETDEV, CARD, *free, egress("a", THERE, pool="p"), egress("b", THERE6, pool="p"))
    device = {
        Port(
            name="antrea-egress0",
            type="internal",
            external_ids=(("antrea-type", "egress"),),
            no_flood=True,
            category=4,
        ),
        Link("antrea-egress0", 0, category=4),
    }
    kinds = (Port, Dummy, Link, Address, ProxyNeighbour, Sysctl)
    assert agent.wanted(*kinds) == device
    agent.facts.put(EgressOwner("a", "n1"))
    agent.facts.put(EgressOwner("b", "n1"))
    plan = agent.engine.plan()
    assert {type(act) for act in plan.acts} == {ProbeAddress}
    assert {entry for entry in plan.put if isinstance(entry, kinds)} == {
        Address("antrea-egress0", f"{THERE}/32", 4),
        Address("antrea-egress0", f"{THERE6}/128", 4),
        Sysctl("net/ipv6/conf/br-phy/proxy_ndp", "1", 4),
        Sysctl("net/ipv6/neigh/br-phy/proxy_delay", "0", 4),
        ProxyNeighbour(dev="br-phy", ip=THERE6, rank=Rank.RECEIVES, category=4),
    }
    agent.facts.put(LocalAddress(THERE, "antrea-egress0"))
    assert {*agent.engine.plan().acts} == {
        AnnounceAddress(THERE, ("br-phy", ""), dev="br-phy", mac="", ip=THERE),
        RecordAssigned("a", THERE, row="a", egress="a", uid="uid-a", ip=THERE, node="n1", recorded=False),
    }
    agent.facts.put(EgressOwner("a", "n2"))
    assert {entry for entry in agent.engine.plan().drop if isinstance(entry, kinds)} == {
        Address("antrea-egress0", f"{THERE}/32", 4)
    }
    for name in "ab":
        agent.facts.drop(Egress, name)
    agent.engine.plan()
    assert agent.wanted(*kinds) == set()


def test_a_held_address_is_answered_for_and_announced_where_its_neighbours_are() -> None:
    """On the interface with the narrowest network that has it; networks of our own devices do not count."""
    rows = (
        LocalAddress("203.0.113.250", "eth0", 24),
        LocalAddress("203.0.113.251", "wide0", 16),
        LocalAddress("203.0.113.252", "antrea-ext.7", 30),
        LocalAddress("fd00:9::250", "eth0", 64),
        LocalAddress(THERE, "antrea-egress0", 32),
        LocalAddress(HERE6, "antrea-egress0", 128),
    )
    agent = Agent(NETDEV, CARD, *rows, egress("a", THERE, pool="p"), egress("b", HERE6, pool="p"))
    for name in "ab":
        agent.facts.put(EgressOwner(name, "n1"))
    acts = {act.ip: act.dev for act in agent.engine.plan().acts if isinstance(act, AnnounceAddress)}
    assert acts == {THERE: "eth0", HERE6: "eth0"}
    assert {row.dev for row in agent.wanted(ProxyNeighbour) if isinstance(row, ProxyNeighbour)} == {"eth0"}


GATES = EnabledGates("agent", frozenset({"Egress", "EgressSeparateSubnet"}))
VLAN = wide_pool("p", (), "203.0.113.254", 24, 181)
SUBNET_KINDS = (Port, Vlan, Link, Address, ProxyNeighbour, Sysctl, Route, RoutingRule)


@pytest.mark.parametrize("config", [SYSTEM, NETDEV], ids=["system", "netdev"])
def test_an_address_of_a_vlan_has_a_device_there_and_leaves_by_a_table_of_its_subnet(
    config: AgentConfig,
) -> None:
    agent = Agent(config, CARD, GATES, VLAN, ProbedAddress("a", THERE), egress("a", THERE, pool="p"))
    assert agent.wanted(*SUBNET_KINDS) == set()
    agent.facts.put(EgressOwner("a", "n1"))
    agent.engine.plan()
    dev = "antrea-ext.181"
    mac, ids = own_mac("n1", dev), (("antrea-type", "egress"),)
    kernel = Vlan(name=dev, card="eth1", vlan=181, mac=mac, category=4)
    ours = Port(name=dev, type="internal", external_ids=ids, mac=mac, tag=181, bridge="br-phy", category=4)
    assert agent.wanted(*SUBNET_KINDS) == {
        kernel if config is SYSTEM else ours,
        Link(dev, 0, mac=mac, category=4),
        Sysctl(f"net/ipv4/conf/{dev}/rp_filter", "2", 4),
        Address(dev, f"{THERE}/24", 4),
        Route(dst="203.0.113.0/24", dev=dev, scope="link", table=101, rank=Rank.RECEIVES, category=4),
        Route(dst="0.0.0.0/0", dev=dev, via="203.0.113.254", table=101, rank=Rank.RECEIVES, category=4),
    }
    agent.facts.put(LocalAddress(THERE, dev))
    assert AnnounceAddress(THERE, (dev, mac), dev=dev, mac=mac, ip=THERE) in agent.engine.plan().acts
    assert agent.wanted(RoutingRule) == {
        RoutingRule(family=4, mark=1, mask=0xFF, table=101, priority=300, rank=Rank.RECEIVES, category=4)
    }
    agent.facts.drop(EgressOwner, "a")
    agent.facts.drop(LocalAddress, THERE)
    agent.engine.plan()
    assert agent.wanted(*SUBNET_KINDS) == set()


def test_an_untagged_subnet_has_its_table_but_no_device_and_each_subnet_has_its_own() -> None:
    other = wide_pool("q", (), "fd00:9::254", 64, 0)
    here = (
        ProbedAddress("a", HERE),
        ProbedAddress("b", HERE6),
        EgressOwner("a", "n1"),
        EgressOwner("b", "n1"),
    )
    rows = (egress("a", HERE, pool="p"), egress("b", HERE6, pool="q"), *here)
    agent = Agent(SYSTEM, CARD, GATES, VLAN, other, *rows)
    routes = {(r.dst, r.dev, r.via, r.table) for r in agent.wanted(Route) if isinstance(r, Route)}
    tables = {r.family: r.table for r in agent.wanted(RoutingRule) if isinstance(r, RoutingRule)}
    assert sorted(tables.values()) == [101, 102]
    assert routes == {
        ("203.0.113.0/24", "antrea-ext.181", "", tables[4]),
        ("0.0.0.0/0", "antrea-ext.181", "203.0.113.254", tables[4]),
        ("fd00:9::/64", "br-phy", "", tables[6]),
        ("::/0", "br-phy", "fd00:9::254", tables[6]),
    }


def test_a_device_in_a_vlan_may_have_the_mac_address_of_its_card() -> None:
    config = AgentConfig(egress=EgressSection(unique_mac_for_sub_interfaces=False))
    agent = Agent(config, CARD, GATES, VLAN, egress("a", THERE, pool="p"), EgressOwner("a", "n1"))
    assert {device.mac for device in agent.wanted(Vlan) if isinstance(device, Vlan)} == {CARD.mac}
    assert own_mac("n1", "antrea-ext.181") != own_mac("n2", "antrea-ext.181")


ROWS: tuple[Fact, ...] = (
    *(egress(name, ip, created) for name in "ab" for ip in (HERE, THERE, HERE6) for created in ("1", "2")),
    *(egress(name, THERE, pool="p") for name in "ab"),
    *(EgressOwner(name, node) for name in "ab" for node in ("n1", "n2")),
    *(EgressPod(name, "shop/web") for name in "ab"),
    *(LocalAddress(ip, "eth0") for ip in (HERE, THERE, HERE6)),
    PEER,
    WEB,
    GATEWAY,
)


class Kept:
    """The journal of numbers that an agent left."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def read(self) -> list[Record]:
        return self.records

    def append(self, record: Record) -> None:
        self.records.append(record)

    def rewrite(self, records: Iterable[Record]) -> None:
        self.records = list(records)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(ROWS), st.booleans()), max_size=30),
    st.sampled_from((SYSTEM, NETDEV)),
)
def test_news_one_by_one_and_all_at_once_end_alike(
    news: list[tuple[bool, Fact, bool]], config: AgentConfig
) -> None:
    agent = Agent(config)
    for put, row, step in news:
        if put:
            agent.facts.put(row)
        else:
            agent.facts.drop(type(row), row.key)
        if step:
            agent.engine.plan()
    agent.engine.plan()
    numbers = agent.facts.ids.standing().items()
    scratch = Facts(Kept([Record(pool, key, number) for (pool, key), number in numbers]))
    for kind in {type(row) for row in (*ROWS, config, NODE, wide_pool("p"))}:
        for row in agent.facts.all(kind):
            scratch.put(row)
    restarted = Engine(scratch, (*FEATURE.units, *POOL_MEMBERS.units))
    restarted.plan()
    assert set(restarted.standing().values()) == set(agent.engine.standing().values())
