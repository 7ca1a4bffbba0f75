"""In mode hybrid replies of an Egress go back through the tunnel by which its packets came."""

from __future__ import annotations

import msgspec
import pytest

from antrea.agent.feature_set import active, pipeline_of
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.node import PeerNode, ThisNode, Transport
from antrea.facts.ovs import OvsPort
from antrea.features.egress.agent.feature import FEATURE
from antrea.features.egress.agent.subnet import rule_numbers
from antrea.host.nft import NftRule
from antrea.host.route import Neighbour, Route, RoutingRule
from antrea.host.sysctl import Sysctl
from antrea.openflow.flow import Flow

GATEWAY = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:01")
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/80"), ("192.0.2.1",), ("198.51.100.1",))
PEER = PeerNode("n2", ("10.10.1.0/24", "fd00:10:1::/80"), ("192.0.2.2",), ("198.51.100.2",))
CARD = Transport("eth1", "br-phy", "0a:00:00:00:00:02", 1500, ("198.51.100.1/24",))
SYSTEM, NETDEV = AgentConfig(), AgentConfig(ovs_datapath_type="netdev")
HYBRID = AgentConfig(traffic_encap_mode="hybrid")
MAC = "aa:bb:cc:dd:ee:ff"


class Agent:
    """The units of Egress over facts of one Node."""

    def __init__(self, config: AgentConfig, card: Transport) -> None:
        facts = Facts()
        self.engine = Engine(facts, FEATURE.units)
        self.pipeline = pipeline_of(active({"Egress"}), config, NODE)
        for row in (config, NODE, GATEWAY, PEER, card):
            facts.put(row)
        self.engine.plan()

    def flows(self, *words: str) -> set[str]:
        """Those that have all of these words."""
        found = (entry.named(self.pipeline) for entry in self.wanted(Flow) if isinstance(entry, Flow))
        return {line for line in found if all(word in line for word in words)}

    def wanted(self, *kinds: type) -> set[object]:
        return {entry for entry in self.engine.standing().values() if isinstance(entry, kinds)}


def returns(config: AgentConfig, *, apart: bool = False) -> set[str]:
    card = msgspec.structs.replace(CARD, addresses=("198.51.100.1/32",)) if apart else CARD
    return Agent(config, card).flows("table=L3Forwarding", "priority=201", "ct_mark=0x1/0xf")


def test_replies_to_pods_of_a_neighbor_enter_the_tunnel_as_upstreams_do() -> None:
    assert returns(HYBRID) == {
        (
            "table=L3Forwarding,priority=201,ct_mark=0x1/0xf,ip,reg0=0x2/0xf,nw_dst=10.10.1.0/24 "
            "actions=set_field:0a:00:00:00:00:01->eth_src,set_field:aa:bb:cc:dd:ee:ff->eth_dst,"
            "set_field:198.51.100.2->tun_dst,set_field:0x10/0xf0->reg0,goto_table:L3DecTTL"
        )
    }
    # what goes to a Node behind a router enters the tunnel anyway
    assert returns(HYBRID, apart=True) == returns(SYSTEM) == set()


@pytest.mark.parametrize("datapath", ["system", "netdev"])
def test_the_host_routes_replies_of_marked_connections_to_the_switch(datapath: str) -> None:
    agent = Agent(msgspec.structs.replace(HYBRID, ovs_datapath_type=datapath), CARD)
    dev, mark = "antrea-gw0", 0x40000000
    routes = {route for route in agent.wanted(Route) if isinstance(route, Route) and route.table == 141}
    assert {(route.dst, route.dev, route.via, route.onlink) for route in routes} == {
        ("0.0.0.0/0", dev, "169.254.0.251", True),
        ("::/0", dev, "fc01::aabb:ccdd:eefd", True),
    }
    assert {ip.ip for ip in agent.wanted(Neighbour) if isinstance(ip, Neighbour) and ip.mac == MAC} == {
        "169.254.0.251",
        "fc01::aabb:ccdd:eefd",
    }
    rules = {
        rule for rule in agent.wanted(RoutingRule) if isinstance(rule, RoutingRule) and rule.table == 141
    }
    assert {(rule.family, rule.mark, rule.mask, rule.priority) for rule in rules} == {
        (family, mark, mark, 298) for family in (4, 6)
    }
    assert [rule_numbers(rule) for rule in rules] == [(), ()]
    settings = {(row.path, row.value) for row in agent.wanted(Sysctl) if isinstance(row, Sysctl)}
    assert (f"net/ipv4/conf/{dev}/rp_filter", "2") in settings
    texts = {f"{rule.chain}: {rule.text}" for rule in agent.wanted(NftRule) if isinstance(rule, NftRule)}
    reply = "ct state established ct direction reply ct mark & 0x40000000 == 0x40000000"
    assert {
        'prerouting-mangle: iifname "antrea-gw0" ip saddr != 10.10.0.0/24 ct state new meta mark & 0x000000ff != 0x00000000 ct mark set ct mark | 0x40000000',
        'prerouting-mangle: iifname "antrea-gw0" ip6 saddr != fd00:10::/80 ct state new meta mark & 0x000000ff != 0x00000000 ct mark set ct mark | 0x40000000',
        f"prerouting-mangle: {reply} meta mark set meta mark | 0x40000000",
        f"output-mangle: {reply} meta mark set meta mark | 0x40000000",
        f'postrouting-mangle: oifname "antrea-gw0" {reply} meta mark set meta mark & 0xbfffffff',
    } <= texts


@pytest.mark.parametrize("config", [SYSTEM, NETDEV, AgentConfig(traffic_encap_mode="noEncap")])
def test_other_modes_have_nothing_of_it(config: AgentConfig) -> None:
    agent = Agent(config, CARD)
    assert not [entry for entry in agent.wanted(Route, RoutingRule, Neighbour) if "141" in str(entry)]
    assert not [entry for entry in agent.wanted(NftRule) if "0x40000000" in str(entry)]
