"""Flows of load balancing that every Node has, whatever Services there are.

parity: pkg/agent/openflow/pipeline.go preRoutingClassifierFlows, serviceNeedLBFlow, sessionAffinityReselectFlow,
gatewaySNATFlows, snatConntrackFlows, l3FwdFlowToExternalEndpoint, l2ForwardOutputHairpinServiceFlow
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.ovs import OvsPort
from antrea.host.pod_cidr import gateway_ip
from antrea.openflow.action import IN_PORT, controller, goto, meter, move, resubmit, set_eth_dst
from antrea.openflow.cookie import Category
from antrea.openflow.ct import NAT, ct, nat_src
from antrea.openflow.fields import (
    CONN_SNAT_CT_MARK,
    CONN_SOURCE_CT_MARK,
    EP_REMEMBERED_REG_MARK,
    EP_SELECTED_REG_MARK,
    EP_TO_SELECT_REG_MARK,
    FROM_EXTERNAL_REG_MARK,
    FROM_GATEWAY_REG_MARK,
    FROM_POD_REG_MARK,
    GLOBAL_VIRTUAL_MAC,
    HAIRPIN_CT_MARK,
    NODE_PORT_CT_LABEL,
    NOT_DSR_SERVICE_REG_MARK,
    NOT_REWRITE_MAC_REG_MARK,
    OUTPUT_TO_OF_PORT_REG_MARK,
    PKT_SOURCE,
    REWRITE_MAC_REG_MARK,
    SERVICE_CT_MARK,
    SERVICE_GROUP_CT_LABEL,
    SERVICE_GROUP_ID,
    SVC_NO_EP_REG_MARK,
    TO_EXTERNAL_ADDRESS_REG_MARK,
    TO_GATEWAY_REG_MARK,
    TO_NODE_PORT_ADDRESS,
    TO_TUNNEL_REG_MARK,
    PacketIn,
    Zone,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import ct_state, dl_dst, dst, family
from antrea.openflow.meter import Meter, PacketInMeter, packet_in_meter
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT, Stage
from antrea.openflow.tables import (
    CONNTRACK_STATE,
    ENDPOINT_DNAT,
    L3_DEC_TTL,
    L3_FORWARDING,
    NODE_PORT_MARK,
    OUTPUT,
    PRE_ROUTING_CLASSIFIER,
    SERVICE_LB,
    SESSION_AFFINITY,
    SNAT,
    SNAT_MARK,
    UN_SNAT,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.node import ThisNode
    from antrea.openflow.field import Mark

VIRTUAL_IPS = ("169.254.0.253", "fc01::aabb:ccdd:eeff")
"""Source of connections that the Node sends to a Service and the Service sends back, in IPv4 and IPv6.

parity: pkg/agent/config/service_config.go VirtualServiceIPv4, VirtualServiceIPv6
"""
UNSERVED_SHARE = 10
"""Share of the packets a second that a feature may send to the agent for ports that no Service has, as a divisor."""
flow = flows_of(Category.SERVICE)


def service_pipeline_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Yield the flows; waits for the gateway port."""
    config = facts.get(AgentConfig)
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    if config is None or gateway is None:
        return
    yield from selection_flows()
    yield flow(
        L3_FORWARDING,
        Priority.LOW,
        REWRITE_MAC_REG_MARK.match,
        FROM_GATEWAY_REG_MARK.match,
        SERVICE_CT_MARK.match,
        then=[set_eth_dst(gateway.mac), TO_GATEWAY_REG_MARK.load, goto(L3_DEC_TTL)],
    )
    yield flow(
        OUTPUT,
        Priority.HIGH,
        OUTPUT_TO_OF_PORT_REG_MARK.match,
        HAIRPIN_CT_MARK.match,
        then=[IN_PORT],
    )
    for cidr in node.pod_cidrs:
        if config.ovs_datapath_type == "netdev":
            yield translated_flow(cidr)
        marks = [resubmit(NODE_PORT_MARK)] if config.antrea_proxy.proxy_all else []
        tables = [*marks, resubmit(SESSION_AFFINITY), resubmit(SERVICE_LB)]
        yield flow(PRE_ROUTING_CLASSIFIER, Priority.NORMAL, family(cidr), then=tables)
        yield from marking_flows(cidr)
        yield from translation_flows(cidr)


def selection_flows() -> Iterator[Flow]:
    """Yield flows from the lookup of session affinity to the packet that no Endpoint takes."""
    select = EP_TO_SELECT_REG_MARK.load
    yield flow(SESSION_AFFINITY, Priority.MISS, then=[select])
    # The Endpoint that a client stayed with has left its Service: another one is chosen.
    yield flow(SERVICE_LB, Priority.LOW, EP_REMEMBERED_REG_MARK.match, then=[select, resubmit(SERVICE_LB)])
    yield flow(ENDPOINT_DNAT, Priority.LOW, EP_SELECTED_REG_MARK.match, then=[select, resubmit(SERVICE_LB)])
    yield flow(
        ENDPOINT_DNAT, Priority.NORMAL, SVC_NO_EP_REG_MARK.match, then=[controller(PacketIn.SVC_REJECT)]
    )


def unserved_port_flows(facts: Facts, node: ThisNode) -> Iterator[Flow | Meter]:
    """Yield flows of a separate unit: a datapath that refuses the meter serves Services nevertheless, and drops these packets."""
    config = facts.get(AgentConfig)
    if config is None or not config.antrea_proxy.proxy_all:
        return
    rate = max(1, config.packet_in_rate // UNSERVED_SHARE)
    yield packet_in_meter(PacketInMeter.UNSERVED_PORT, rate, Category.SERVICE)
    for cidr in node.pod_cidrs:
        yield unserved_flow(cidr)


def unserved_flow(cidr: str) -> Flow:
    """Packets to a port that no Service has, at an address that the host routes to the switch since a Service has it.

    The host sends those of Pods, too, back here; it alone has routes to all these addresses. kube-proxy rejects them in mode nftables;
    upstream drops them. Those above the meter are dropped: a port scan takes no answers from packets to Services without Endpoints.
    """
    return flow(
        L3_FORWARDING,
        Priority.LOW,
        family(cidr),
        FROM_GATEWAY_REG_MARK.match,
        NOT_REWRITE_MAC_REG_MARK.match,
        dl_dst(GLOBAL_VIRTUAL_MAC),
        then=[
            meter(PacketInMeter.UNSERVED_PORT),
            SVC_NO_EP_REG_MARK.load,
            controller(PacketIn.SVC_REJECT),
        ],
    )


def translated_flow(cidr: str) -> Flow:
    """Packets of a connection that was translated, and not answered yet: each is judged as the first was.

    The kernel translates them when they have passed the groups again, and the userspace datapath as soon as it tracks them.
    """
    return flow(
        CONNTRACK_STATE,
        Priority.LOW,
        family(cidr),
        ct_state("+new+trk+dnat"),
        SERVICE_CT_MARK.match,
        then=[
            REWRITE_MAC_REG_MARK.load,
            move(SERVICE_GROUP_CT_LABEL, SERVICE_GROUP_ID),
            move(NODE_PORT_CT_LABEL, TO_NODE_PORT_ADDRESS),
            goto(Stage.EGRESS_SECURITY),
        ],
    )


def marking_flows(cidr: str) -> Iterator[Flow]:
    """Yield flows that record, in the zone of destinations, connections of the gateway whose source has to be translated."""
    new = (family(cidr), ct_state("+new+trk"), FROM_GATEWAY_REG_MARK.match)
    zone, source = _zone(cidr), move(PKT_SOURCE, CONN_SOURCE_CT_MARK)
    back = [CONN_SNAT_CT_MARK.load, HAIRPIN_CT_MARK.load, source]
    yield flow(
        SNAT_MARK,
        Priority.NORMAL,
        *new,
        TO_GATEWAY_REG_MARK.match,
        then=[ct(zone, commit=True, table=NEXT, then=back)],
    )
    translate = [ct(zone, commit=True, table=NEXT, then=[CONN_SNAT_CT_MARK.load, source])]
    # hosts outside that have a route to ClusterIPs by this Node are answered by it, too; upstream's get no answer
    to_cluster_ip = (FROM_EXTERNAL_REG_MARK.match, SERVICE_CT_MARK.match)
    for priority, requested in (
        (Priority.NORMAL, (TO_EXTERNAL_ADDRESS_REG_MARK.match,)),
        (Priority.LOW, to_cluster_ip),
    ):
        match = (*new, TO_TUNNEL_REG_MARK.match, *requested, NOT_DSR_SERVICE_REG_MARK.match)
        yield flow(SNAT_MARK, priority, *match, then=translate)


def translation_flows(cidr: str) -> Iterator[Flow]:
    """Yield flows that translate sources to addresses whose answers come back through this switch, and answers back."""
    gateway, virtual, zone = gateway_ip(cidr), VIRTUAL_IPS[is_ipv6(cidr)], _snat_zone(cidr)
    new = (family(cidr), ct_state("+new+trk"))
    snat, hairpin = CONN_SNAT_CT_MARK, HAIRPIN_CT_MARK

    def translated(priority: int, source: Mark, why: Mark, address: str) -> Flow:
        loads = [mark.load for mark in dict.fromkeys((SERVICE_CT_MARK, snat, why))]
        commit = ct(zone, commit=True, table=NEXT, nat=nat_src(address), then=loads)
        return flow(SNAT, priority, *new, source.match, why.match, then=[commit])

    yield translated(Priority.NORMAL, FROM_GATEWAY_REG_MARK, hairpin, virtual)
    yield translated(Priority.NORMAL, FROM_POD_REG_MARK, hairpin, gateway)
    yield translated(Priority.LOW, FROM_GATEWAY_REG_MARK, snat, gateway)
    yield flow(
        SNAT,
        Priority.NORMAL,
        family(cidr),
        ct_state("-new-rpl+trk"),
        snat.match,
        then=[ct(zone, table=NEXT, nat=NAT)],
    )
    for address in (virtual, gateway):
        yield flow(UN_SNAT, Priority.NORMAL, dst(address), then=[ct(zone, table=NEXT, nat=NAT)])


def _zone(cidr: str) -> Zone:
    return Zone.CT_ZONE_V6 if is_ipv6(cidr) else Zone.CT_ZONE


def _snat_zone(cidr: str) -> Zone:
    return Zone.SNAT_CT_ZONE_V6 if is_ipv6(cidr) else Zone.SNAT_CT_ZONE
