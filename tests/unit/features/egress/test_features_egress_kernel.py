"""Egress where the kernel forwards: its own device, and flows that it does not refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.agent.feature_set import active, pipeline_of
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressOwner
from antrea.facts.node import LocalAddress, ThisNode, Transport
from antrea.features.egress.agent.feature import FEATURE
from antrea.host.carrier import ip_mac
from antrea.host.link import Dummy, Link
from antrea.host.ovs_port import Port
from antrea.openflow.flow import Flow

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

CONFIG = AgentConfig()
NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/80"), ("192.0.2.1", "fd00:2::1"), ("192.0.2.1",))
CARD = Transport("eth1", "eth1", "0a:00:00:00:00:02", 1500, ("198.51.100.1/24",))
FOUR, SIX = "203.0.113.1", "fd00:9::1"
HERE = tuple(LocalAddress(ip, "eth0") for ip in (FOUR, SIX))
LOCAL = {
    (
        "table=EgressMark,priority=200,ct_state=+trk,ip,tun_dst=203.0.113.1"
        " actions=set_field:0x1/0xff->pkt_mark,set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc"
    ),
    (
        f"table=EgressMark,priority=201,ct_state=+trk,ipv6,reg0=0x1/0xf,dl_src={ip_mac(SIX)}"
        " actions=set_field:0x2/0xff->pkt_mark,set_field:0x20/0xf0->reg0,goto_table:L2ForwardingCalc"
    ),
}


def engine(*rows: Fact) -> Engine:
    facts = Facts()
    for row in (CONFIG, NODE, CARD, *rows):
        facts.put(row)
    found = Engine(facts, FEATURE.units)
    found.plan()
    return found


def test_the_device_is_a_dummy_from_the_beginning_and_stays_down() -> None:
    """`ip link` has it as upstream's: NOARP, state DOWN, whether there is a pool or not."""
    for rows in ((), (Egress("a", "u", FOUR, pool="p"), EgressOwner("a", "n1"))):
        kinds = (Port, Dummy, Link)
        standing = {one for one in engine(*rows).standing().values() if isinstance(one, kinds)}
        assert standing == {Dummy("antrea-egress0", 4)}


def test_no_flow_looks_at_ipv6_tunnels_and_those_that_look_at_ipv4_ones_come_later() -> None:
    """The kernel takes no flow that looks at both."""
    pipeline = pipeline_of(active({"Egress"}), CONFIG, NODE)
    standing = engine(*HERE, Egress("a", "u", FOUR), Egress("b", "v", SIX)).standing().values()
    flows = {one.named(pipeline) for one in standing if isinstance(one, Flow)}
    assert {line for line in flows if "pkt_mark" in line} == LOCAL
    assert {line for line in flows if "tun_" in line} <= LOCAL
