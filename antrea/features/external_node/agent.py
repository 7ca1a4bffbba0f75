"""ExternalNode in the agent of such a machine: packets between its network cards and the interfaces that took their place.

IPv6 goes through policies as IPv4 does; what neighbour discovery and multicast listeners send goes by, as ARP does: connection
tracking calls it invalid. parity: pkg/agent/openflow/externalnode_connectivity.go, which has IPv6 among what is not IP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Facts, Unit
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.external_node.machine import GATE
from antrea.features.framework.agent_feature import AgentFeature, RealizedPipeline
from antrea.features.pod_connectivity.agent import default_flows
from antrea.host.nft import NftShield
from antrea.openflow.action import DROP, goto, output
from antrea.openflow.cookie import Category
from antrea.openflow.ct import ct
from antrea.openflow.fields import OUTPUT_TO_OF_PORT_REG_MARK, TARGET_OF_PORT, Zone
from antrea.openflow.flow import flows_of
from antrea.openflow.match import (
    PROTOCOLS,
    ct_state,
    dst,
    icmp,
    icmp6,
    icmp_type,
    in_port,
    ip,
    ipv6,
    src,
    tp_dst,
)
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT
from antrea.openflow.tables import (
    CONNTRACK_COMMIT,
    CONNTRACK_STATE,
    CONNTRACK_ZONE,
    EGRESS_METRIC,
    EGRESS_SECURITY_CLASSIFIER,
    INGRESS_METRIC,
    INGRESS_SECURITY_CLASSIFIER,
    L2_FORWARDING_CALC,
    NON_IP,
    OUTPUT,
    PIPELINE_ROOT_CLASSIFIER,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.config.agent_sections import BypassRule
    from antrea.openflow.field import Match
    from antrea.openflow.flow import Flow

UNTRACKED = (130, 131, 132, 133, 134, 135, 136, 143)
"""ICMPv6 types that the kernel does not track: net/netfilter/nf_conntrack_proto_icmpv6.c, noct_valid_new."""
TABLES = (
    CONNTRACK_ZONE, CONNTRACK_STATE, EGRESS_SECURITY_CLASSIFIER, L2_FORWARDING_CALC, INGRESS_SECURITY_CLASSIFIER,
    CONNTRACK_COMMIT, OUTPUT, NON_IP,
)  # fmt: skip
flow = flows_of(Category.EXTERNAL_NODE_CONNECTIVITY)


def machine_flows(_: Facts, node: ThisNode) -> Iterator[Flow]:
    """Connection tracking and output, whatever interfaces there are."""
    yield flow(CONNTRACK_STATE, Priority.MISS, then=[goto(NEXT)])
    yield flow(OUTPUT, Priority.NORMAL, OUTPUT_TO_OF_PORT_REG_MARK.match, then=[output(TARGET_OF_PORT)])
    for v6 in sorted(node.families):
        kind, zone = (ipv6, Zone.CT_ZONE_V6) if v6 else (ip, Zone.CT_ZONE)
        yield flow(CONNTRACK_ZONE, Priority.NORMAL, kind, then=[ct(zone, table=CONNTRACK_STATE)])
        yield flow(CONNTRACK_STATE, Priority.HIGH, kind, ct_state("+inv+trk"), then=DROP)
        remember = ct(zone, commit=True, table=OUTPUT)
        yield flow(CONNTRACK_COMMIT, Priority.NORMAL, kind, ct_state("+new+trk"), then=[remember])
    for number in UNTRACKED:
        yield flow(PIPELINE_ROOT_CLASSIFIER, Priority.HIGH, icmp6, icmp_type(number), then=[goto(NON_IP)])


def uplink_flows(facts: Facts, interface: PodInterface) -> Iterator[Flow | NftShield]:
    """Yield flows by which packets of one port of a pair leave by the other, past policies."""
    config, card = facts.need(AgentConfig), facts.need(OvsPort, interface.uplink)
    for here, there in ((interface.ofport, card.ofport), (card.ofport, interface.ofport)):
        yield flow(
            L2_FORWARDING_CALC,
            Priority.NORMAL,
            in_port(here),
            then=[OUTPUT_TO_OF_PORT_REG_MARK.load, TARGET_OF_PORT(there).load, goto(NEXT)],
        )
        yield flow(NON_IP, Priority.NORMAL, in_port(here), then=[output(there)])
    if config.ovs_datapath_type == "netdev":
        yield NftShield(interface.uplink, interface.port_uuid)


def bypass_flows(facts: Facts, _: ThisNode) -> Iterator[Flow]:
    """`externalNode.policyBypassRules`: their new connections go by the rules of policies."""
    for rule in facts.need(AgentConfig).external_node.policy_bypass_rules:
        enters = rule.direction == "ingress"
        table, metric = (
            (INGRESS_SECURITY_CLASSIFIER, INGRESS_METRIC)
            if enters
            else (EGRESS_SECURITY_CLASSIFIER, EGRESS_METRIC)
        )
        end = src(rule.cidr) if enters else dst(rule.cidr)
        yield flow(table, Priority.NORMAL, *_protocol(rule), ct_state("+new+trk"), end, then=[goto(metric)])


def _protocol(rule: BypassRule) -> tuple[Match, ...]:
    v6 = is_ipv6(rule.cidr)
    if rule.protocol == "ip":
        return ()
    if rule.protocol == "icmp":
        return (icmp6 if v6 else icmp,)
    return PROTOCOLS[rule.protocol.upper()][v6], tp_dst(rule.port)


FEATURE = AgentFeature(
    name="ExternalNode",
    tables=TABLES,
    units=(
        Unit(RealizedPipeline, default_flows),
        Unit(ThisNode, machine_flows),
        Unit(PodInterface, uplink_flows),
        Unit(ThisNode, bypass_flows),
    ),
    gate=GATE,
    category=Category.EXTERNAL_NODE_CONNECTIVITY,
    runs_on=("externalNode",),
)
FEATURES = (FEATURE,)
