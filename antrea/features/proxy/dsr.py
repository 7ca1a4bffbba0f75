"""Direct server return: an Endpoint on another Node answers the client itself, and sees the client's address.

The Node that a packet enters by chooses an Endpoint as ever, passes the packet on as it is (`direct_path`), and remembers the
choice in a learned flow: it never sees an answer, so connection tracking calls what follows invalid. The Node of the Endpoint
chooses one of its own and translates. IPv6, and Nodes without tunnels, are beyond upstream.
parity: pkg/agent/openflow/pipeline.go dsrServiceMarkFlow, dsrServiceNoDNATFlows, conntrackFlows, l3FwdFlowsToRemoteViaTun
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Act, Unit
from antrea.facts.family import is_ipv6
from antrea.facts.node import PeerNode, ThisNode, Transport
from antrea.facts.service import Service
from antrea.features.framework.agent_feature import AgentFeature
from antrea.features.node_route.way import direct_hop, shared_cidrs
from antrea.features.proxy.direct_path import GATE, from_peer, passed_way
from antrea.features.proxy.external_address import reports_for_all
from antrea.openflow import learn
from antrea.openflow.action import DROP, goto, resubmit
from antrea.openflow.cookie import Category
from antrea.openflow.ct import ct
from antrea.openflow.fields import (
    DSR_SERVICE_REG_MARK,
    ENDPOINT_IP,
    ENDPOINT_IP6,
    ENDPOINT_PORT,
    EP_REMEMBERED_REG_MARK,
    EP_SELECTED_REG_MARK,
    EP_TO_SELECT_REG_MARK,
    FROM_EXTERNAL_REG_MARK,
    NOT_DSR_SERVICE_REG_MARK,
    NOT_REMEMBERED_REMOTE_REG_MARK,
    NOT_SERVICE_CT_MARK,
    REMEMBERED_REMOTE_REG_MARK,
    REMOTE_ENDPOINT_REG_MARK,
    SERVICE_GROUP_ID,
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
    SERVICE_LB,
    SESSION_AFFINITY,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.openflow.field import Match

DSR = "dsr"
"""The load balancer mode of a Service."""
IDLE_SECONDS, CLOSED_SECONDS = 160, 5
"""Seconds for which a choice is remembered without packets, and after a FIN or RST."""
MAX_NAMED = 5
"""Maximum number of Nodes in a message."""
DIRECT_IPS = ("169.254.0.250", "fc01::aabb:ccdd:eefc")
"""Destination between host and switch of packets to NodePorts that Endpoints answer directly, in IPv4 and IPv6."""
flow = flows_of(Category.SERVICE)


def marking_flow(match: tuple[Match, ...], protocol: str, object_id: int, *, ipv6: bool) -> Flow:
    """Make the flow for the first packet from outside to an Endpoint on another Node; all that follow find the choice learned."""
    chosen = [learn.learned_load(EP_SELECTED_REG_MARK)]
    if protocol == "UDP":
        chosen = [learn.learned_load(EP_REMEMBERED_REG_MARK), learn.learned_copy(SERVICE_GROUP_ID)]
    remember = learn.learn(
        SESSION_AFFINITY,
        Priority.HIGH,
        cookie_of=(Category.SERVICE, object_id),
        timeouts=[learn.idle_timeout(IDLE_SECONDS), learn.fin_idle_timeout(CLOSED_SECONDS)],
        specs=[
            *learn.same_protocol(protocol.lower(), v6=ipv6),
            learn.same_src_port(protocol),
            learn.same_dst_port(protocol),
            learn.same_src(v6=ipv6),
            learn.same_dst(v6=ipv6),
            learn.learned_copy(ENDPOINT_PORT),
            learn.learned_copy(ENDPOINT_IP6 if ipv6 else ENDPOINT_IP),
            *chosen,
            learn.learned_load(DSR_SERVICE_REG_MARK),
        ],
    )
    remote = (FROM_EXTERNAL_REG_MARK.match, REMOTE_ENDPOINT_REG_MARK.match, NOT_DSR_SERVICE_REG_MARK.match)
    then = [remember, DSR_SERVICE_REG_MARK.load, goto(NEXT)]
    return flow(DSR_SERVICE_MARK, Priority.NORMAL, *match, *remote, then=then, object_id=object_id)


def chosen_within(cidr: str) -> Match:
    """Packets whose chosen Endpoint has an address of this network."""
    network = ip_network(cidr)
    field = ENDPOINT_IP6 if is_ipv6(cidr) else ENDPOINT_IP
    return field.within(int(network.network_address), int(network.netmask))


class ModeUnavailable(Act, frozen=True):
    """Event that a Service requests direct server return and does not have it for all its Endpoints."""

    namespace: str
    name: str
    uid: str
    message: str


# units


def unavailable_mode(facts: Facts, service: Service) -> Iterator[ModeUnavailable]:
    """Yield the Event where there are no tunnels, but routers between Nodes; one agent reports it for all."""
    config, link = facts.get(AgentConfig), facts.get(Transport)
    if config is None or config.has_tunnel or link is None or not reports_for_all(facts):
        return
    is_requested = (service.mode or config.antrea_proxy.default_load_balancer_mode) == DSR
    if not is_requested or not (service.external_ips or any(service.node_ports)):
        return
    families = {is_ipv6(ip) for ip in service.cluster_ips}
    far = sorted(
        peer.name
        for peer in facts.all(PeerNode)
        if not all(direct_hop(link, peer, ipv6=ipv6) for ipv6 in families)
    )
    if not far:
        return
    names = ", ".join(far[:MAX_NAMED]) + (f" and {len(far) - MAX_NAMED} more" if len(far) > MAX_NAMED else "")
    message = (
        f"load balancer mode {DSR} with trafficEncapMode {config.traffic_encap_mode} needs Nodes on one network, and there are "
        f"routers before {names}: packets that cross them are served in mode nat; set trafficEncapMode to encap, or the "
        "annotation to nat"
    )
    yield ModeUnavailable(
        service.key, message, namespace=service.namespace, name=service.name, uid=service.uid, message=message
    )


def untracked_flows(_facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Yield flows that look up packets which connection tracking cannot follow here, and drop them if no choice was learned."""
    for cidr in node.pod_cidrs:
        ip, invalid = family(cidr), ct_state("+inv+trk")
        look_up = [goto(Stage.PRE_ROUTING)]
        yield flow(CONNTRACK_STATE, Priority.HIGH, ip, FROM_EXTERNAL_REG_MARK.match, invalid, then=look_up)
        # connection tracking in user space takes the second packet for that of an established connection
        followed = (ct_state("-new-rpl+trk"), NOT_SERVICE_CT_MARK.match, FROM_EXTERNAL_REG_MARK.match)
        yield flow(CONNTRACK_STATE, Priority.NORMAL, ip, *followed, then=look_up)
        yield flow(DSR_SERVICE_MARK, Priority.LOW, ip, NOT_DSR_SERVICE_REG_MARK.match, invalid, then=DROP)
        # the Endpoint's Node is gone, or it is no Pod of a Node
        yield flow(L3_FORWARDING, Priority.LOW + 1, ip, DSR_SERVICE_REG_MARK.match, then=DROP)
        as_it_is = [ct(Zone.CT_ZONE_V6 if is_ipv6(cidr) else Zone.CT_ZONE, commit=True, table=NEXT)]
        yield flow(ENDPOINT_DNAT, Priority.HIGH, ip, DSR_SERVICE_REG_MARK.match, then=as_it_is)


def still_there(match: tuple[Match, ...]) -> Flow:
    """Make the flow that checks that the Endpoint of a client is still on another Node; no connection to one that is gone is
    remembered.
    """
    then = [REMOTE_ENDPOINT_REG_MARK.load, NOT_REMEMBERED_REMOTE_REG_MARK.load, resubmit(DSR_SERVICE_MARK)]
    return flow(DSR_SERVICE_MARK, Priority.HIGH, *match, REMEMBERED_REMOTE_REG_MARK.match, then=then)


def choice_flows(facts: Facts, _node: ThisNode) -> Iterator[Flow]:
    """A choice that does not hold any more is made anew.

    A client's earlier choice, of an Endpoint elsewhere, is none for what another Node has passed on: it would go in circles.
    UDP has no end, so a client would send to an Endpoint that is gone for as long as it sends at all.
    """
    none = [NOT_DSR_SERVICE_REG_MARK.load, NOT_REMEMBERED_REMOTE_REG_MARK.load, EP_TO_SELECT_REG_MARK.load]
    anew, chosen = [*none, resubmit(SERVICE_LB)], EP_SELECTED_REG_MARK.match
    for mark in (DSR_SERVICE_REG_MARK, REMEMBERED_REMOTE_REG_MARK):
        yield flow(SERVICE_LB, Priority.HIGH, chosen, mark.match, from_peer(facts), then=anew)
        yield flow(SERVICE_LB, Priority.LOW + 1, EP_REMEMBERED_REG_MARK.match, mark.match, then=anew)


def endpoint_node_flows(facts: Facts, peer: PeerNode) -> Iterator[Flow]:
    """Yield flows to the Node whose Pod CIDR has the chosen Endpoint, whatever the packet's destination."""
    node = facts.need(ThisNode)
    for cidr in shared_cidrs(node, peer):
        if way := passed_way(facts, peer, ipv6=is_ipv6(cidr)):
            match = (family(cidr), DSR_SERVICE_REG_MARK.match, chosen_within(cidr))
            yield flow(L3_FORWARDING, Priority.NORMAL, *match, then=way)


FEATURE = AgentFeature(
    name=GATE,
    tables=(DSR_SERVICE_MARK,),
    gate=GATE,
    within="AntreaProxy",
    units=(
        Unit(ThisNode, untracked_flows),
        Unit(ThisNode, choice_flows),
        Unit(PeerNode, endpoint_node_flows),
        Unit(Service, unavailable_mode),
    ),
    category=Category.SERVICE,
)
