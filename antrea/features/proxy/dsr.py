"""Direct server return: an Endpoint on another Node answers the client itself, and sees the client's address.

The Node that a packet enters by chooses an Endpoint as ever, sends the packet through the tunnel as it is, and remembers the
choice in a learned flow: it never sees an answer, so connection tracking calls what follows invalid. The Node of the Endpoint
chooses one of its own and translates. IPv6 is beyond upstream.
parity: pkg/agent/openflow/pipeline.go dsrServiceMarkFlow, dsrServiceNoDNATFlows, conntrackFlows, l3FwdFlowsToRemoteViaTun
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Act, Unit
from antrea.facts.family import is_ipv6
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.framework.gate import EnabledGates
from antrea.features.node_route.agent import tunnel_way
from antrea.features.node_route.way import shared_cidrs, tunnel_end
from antrea.features.proxy.external_address import reports_for_all
from antrea.openflow import learn
from antrea.openflow.action import DROP, goto
from antrea.openflow.cookie import Category
from antrea.openflow.ct import ct
from antrea.openflow.fields import (
    DSR_SERVICE_REG_MARK,
    ENDPOINT_IP,
    ENDPOINT_IP6,
    ENDPOINT_PORT,
    EP_SELECTED_REG_MARK,
    FROM_EXTERNAL_REG_MARK,
    NOT_DSR_SERVICE_REG_MARK,
    NOT_SERVICE_CT_MARK,
    REMOTE_ENDPOINT_REG_MARK,
    Zone,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import ct_state, family
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT, Stage
from antrea.openflow.tables import (
    CONNTRACK_STATE,
    DSR_SERVICE_MARK,
    ENDPOINT_DNAT,
    L3_FORWARDING,
    SESSION_AFFINITY,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.openflow.field import Match

GATE = "LoadBalancerModeDSR"
DSR = "dsr"
"""The load balancer mode of a Service."""
IDLE_SECONDS, CLOSED_SECONDS = 160, 5
"""How long a choice is remembered without packets, and after a FIN or RST."""
DIRECT_IPS = ("169.254.0.250", "fc01::aabb:ccdd:eefc")
"""Destination between host and switch of packets to NodePorts that Endpoints answer directly, in IPv4 and IPv6."""
flow = flows_of(Category.SERVICE)


def marking_flow(match: tuple[Match, ...], protocol: str, number: int, *, ipv6: bool) -> Flow:
    """The first packet from outside to an Endpoint on another Node; all that follow find the choice learned.

    `number` is that of the group of all Endpoints.
    """
    remember = learn.learn(
        SESSION_AFFINITY,
        Priority.HIGH,
        cookie_of=(Category.SERVICE, number),
        timeouts=[learn.idle_timeout(IDLE_SECONDS), learn.fin_idle_timeout(CLOSED_SECONDS)],
        specs=[
            *learn.same_protocol(protocol.lower(), v6=ipv6),
            learn.same_src_port(protocol),
            learn.same_dst_port(protocol),
            learn.same_src(v6=ipv6),
            learn.same_dst(v6=ipv6),
            learn.learned_copy(ENDPOINT_PORT),
            learn.learned_copy(ENDPOINT_IP6 if ipv6 else ENDPOINT_IP),
            learn.learned_load(EP_SELECTED_REG_MARK),
            learn.learned_load(DSR_SERVICE_REG_MARK),
        ],
    )
    remote = (FROM_EXTERNAL_REG_MARK.match, REMOTE_ENDPOINT_REG_MARK.match, NOT_DSR_SERVICE_REG_MARK.match)
    then = [remember, DSR_SERVICE_REG_MARK.load, goto(NEXT)]
    return flow(DSR_SERVICE_MARK, Priority.NORMAL, *match, *remote, then=then, object_id=number)


def chosen_within(cidr: str) -> Match:
    """Packets whose chosen Endpoint has an address of this network."""
    network = ip_network(cidr)
    field = ENDPOINT_IP6 if is_ipv6(cidr) else ENDPOINT_IP
    return field.within(int(network.network_address), int(network.netmask))


def is_possible(facts: Facts) -> bool:
    """Packets get to the Node of an Endpoint as they came only through tunnels."""
    config, gates = facts.get(AgentConfig), facts.get(EnabledGates)
    return config is not None and config.has_tunnel and gates is not None and GATE in gates


class ModeUnavailable(Act, frozen=True):
    """Write an Event of the Service: it asks for direct server return and does not have it."""

    namespace: str
    name: str
    uid: str
    message: str


# units


def unavailable_mode(facts: Facts, service: Service) -> Iterator[ModeUnavailable]:
    """Of a Service that asks for it where there are no tunnels; one agent reports it for all."""
    config = facts.get(AgentConfig)
    if service.mode != DSR or config is None or config.has_tunnel or not reports_for_all(facts):
        return
    message = (
        f"load balancer mode {DSR} needs tunnels between Nodes, which trafficEncapMode {config.traffic_encap_mode} does not "
        "have: external addresses are served in mode nat; set trafficEncapMode to encap, or the annotation to nat"
    )
    yield ModeUnavailable(
        service.key, message, namespace=service.namespace, name=service.name, uid=service.uid, message=message
    )


def untracked_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """What connection tracking cannot follow here is looked up, and dropped if no choice was learned; the rest is not translated."""
    for cidr in node.pod_cidrs:
        ip, invalid = family(cidr), ct_state("+inv+trk")
        look_up = [goto(Stage.PRE_ROUTING)]
        yield flow(CONNTRACK_STATE, Priority.HIGH, ip, FROM_EXTERNAL_REG_MARK.match, invalid, then=look_up)
        # connection tracking in user space takes the second packet for that of an established connection
        followed = (ct_state("-new-rpl+trk"), NOT_SERVICE_CT_MARK.match, FROM_EXTERNAL_REG_MARK.match)
        yield flow(CONNTRACK_STATE, Priority.NORMAL, ip, *followed, then=look_up)
        yield flow(DSR_SERVICE_MARK, Priority.LOW, ip, NOT_DSR_SERVICE_REG_MARK.match, invalid, then=DROP)
        zone = Zone.CT_ZONE_V6 if is_ipv6(cidr) else Zone.CT_ZONE
        as_it_is = [ct(zone, commit=True, table=NEXT)]
        yield flow(ENDPOINT_DNAT, Priority.HIGH, ip, DSR_SERVICE_REG_MARK.match, then=as_it_is)


def endpoint_node_flows(facts: Facts, peer: PeerNode) -> Iterator[Flow]:
    """Through the tunnel to the Node whose Pod CIDR has the chosen Endpoint, whatever the packet's destination."""
    config, node = facts.need(AgentConfig), facts.need(ThisNode)
    gateway, end = facts.need(OvsPort, config.host_gateway), tunnel_end(node, peer)
    if end is None or not config.has_tunnel:
        return
    for cidr in shared_cidrs(node, peer):
        match = (family(cidr), DSR_SERVICE_REG_MARK.match, chosen_within(cidr))
        yield flow(L3_FORWARDING, Priority.NORMAL, *match, then=tunnel_way(gateway, end))


FEATURE = AgentFeature(
    name=GATE,
    tables=(DSR_SERVICE_MARK,),
    gate=GATE,
    within="AntreaProxy",
    units=(
        Unit(ThisNode, untracked_flows),
        Unit(PeerNode, endpoint_node_flows),
        Unit(Service, unavailable_mode),
    ),
    category=Category.SERVICE,
)
