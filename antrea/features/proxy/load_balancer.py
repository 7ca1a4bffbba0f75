"""Service addresses in the switch: which group chooses the Endpoint of a connection, and how a client stays with it.

parity: pkg/agent/openflow/pipeline.go serviceLBFlows, serviceLearnFlow
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode
from antrea.facts.service import EndpointStates, ServicePort, states_key
from antrea.features.framework.gate import EnabledGates
from antrea.features.proxy.direct_path import from_peer
from antrea.features.proxy.dsr import DIRECT_IPS, DSR, marking_flow
from antrea.features.proxy.endpoint import WEIGHT, group_id, is_remembered, is_userspace, port_group, scopes
from antrea.features.proxy.external_address import owner
from antrea.features.proxy.own_address import OWN_IPS, own_port
from antrea.host.pod_cidr import gateway_ip, held
from antrea.openflow import learn
from antrea.openflow.action import DROP, goto, group, resubmit
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    ENDPOINT_IP,
    ENDPOINT_IP6,
    ENDPOINT_PORT,
    EP_REMEMBERED_REG_MARK,
    EP_SELECTED_REG_MARK,
    EP_TO_LEARN_REG_MARK,
    EP_TO_SELECT_REG_MARK,
    FROM_LOCAL_REG_MARK,
    REMEMBERED_REMOTE,
    REMOTE_ENDPOINT,
    REWRITE_MAC_REG_MARK,
    SERVICE_GROUP_ID,
    SVC_NO_EP_REG_MARK,
    TO_EXTERNAL_ADDRESS_REG_MARK,
    TO_NODE_PORT_ADDRESS_REG_MARK,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.group import Bucket, Group
from antrea.openflow.match import (
    ANY,
    PROTOCOLS,
    ct_state,
    ct_udp_dst,
    dst,
    later_fragment6,
    src,
    tp_dst,
    udp,
    udp6,
)
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT
from antrea.openflow.tables import ENDPOINT_DNAT, SERVICE_LB, SESSION_AFFINITY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.openflow.field import Action, Mark, Match

MAX_TIMEOUT_SECONDS = 65535
"""Maximum timeout of a flow in OpenFlow."""
LEARNED = "learned flow"
"""Pool of the object ids of learned flows."""
AFFINITY = "affinity"
REFUSED = Priority.LOW - 10
"""Priority below all flows of allowed sources of an address."""
NO_ENDPOINT = Bucket(0, (SVC_NO_EP_REG_MARK.load, resubmit(ENDPOINT_DNAT)), WEIGHT)
"""The only bucket of a group whose port has no Endpoint to choose: the agent rejects the packet."""
FRAGMENTS = (((udp, tp_dst(0)),), ((udp6, tp_dst(0)), (later_fragment6,)))
"""Matches of UDP fragments in IPv4 and IPv6: the switch has 0 as the port of all, and does not see the protocol of later ones
in IPv6.
"""
flow = flows_of(Category.SERVICE)


class Frontend(NamedTuple):
    """Match of packets to one address of a Service."""

    ipv6: bool
    protocol: Match
    to: Match
    port: int
    external: bool = False
    """Whether it is reached from outside the cluster, so that the external traffic policy applies."""
    sources: tuple[Match, ...] = (ANY,)
    """Sources from which it accepts packets."""
    passed_on: tuple[Match, ...] = ()
    """Match of packets that Endpoints on other Nodes answer directly; empty if there are none."""
    fragments: tuple[Match, ...] = ()
    """Match of fragments in place of protocol and port."""

    @property
    def match(self) -> tuple[Match, ...]:
        """Match of packets to it, without their sources."""
        if self.fragments:
            return (*self.fragments, self.to, ct_state("+new+trk"), ct_udp_dst(self.port))
        return (self.protocol, self.to, tp_dst(self.port))

    @property
    def guarded(self) -> bool:
        """Whether it refuses all others."""
        return self.sources != (ANY,)


# units


def service_entries(facts: Facts, port: ServicePort) -> Iterator[Flow | Group]:
    """Yield the flows of each address, and replacements of Endpoints where there is none."""
    node = facts.get(ThisNode)
    if node is None or port.protocol not in PROTOCOLS:
        return
    for ipv6 in sorted(node.families):
        states = facts.get(EndpointStates, states_key(port.behind, ipv6=ipv6))
        for local in scopes(port, ipv6=ipv6):
            if states is None or not states.chosen(local=local):
                yield port_group(facts, port, NO_ENDPOINT, ipv6=ipv6, local=local)
    fragments = has_fragments(facts, port)
    for frontend in frontends(facts, port, node):
        yield from frontend_flows(facts, port, frontend)
        for fragment in FRAGMENTS[frontend.ipv6] if fragments else ():
            yield from frontend_flows(facts, port, frontend._replace(fragments=fragment))


def has_fragments(facts: Facts, port: ServicePort) -> bool:
    """Whether fragments of a new connection get Endpoints, as on the userspace datapath, which tracks packets whole and takes
    them apart again before their ports are asked for.

    That of the last one becomes the connection's: none where the choice is not the group's alone.
    """
    by_more = port.affinity_seconds or port.direct or port.consistent
    return port.protocol == "UDP" and is_userspace(facts) and not by_more


def frontends(facts: Facts, port: ServicePort, node: ThisNode) -> Iterator[Frontend]:
    """Yield its ClusterIPs, NodePort and external addresses, in the families of its ClusterIPs."""
    families = node.families & port.families
    protocols = PROTOCOLS[port.protocol]
    for ip in port.cluster_ips:
        if (ipv6 := is_ipv6(ip)) in families:
            yield Frontend(ipv6, protocols[ipv6], dst(ip), port.port)
    for ipv6 in sorted(families) if port.node_port else ():
        to = TO_NODE_PORT_ADDRESS_REG_MARK.match
        direct = (protocols[ipv6], dst(DIRECT_IPS[ipv6]), tp_dst(port.node_port)) if port.direct else ()
        yield Frontend(ipv6, protocols[ipv6], to, port.node_port, external=True, passed_on=direct)
    for ip in port.external_ips:
        if (ipv6 := is_ipv6(ip)) in families and owner(facts, port, ip).key == port.key:
            sources = allowed_sources(port, node, ip)
            frontend = Frontend(ipv6, protocols[ipv6], dst(ip), port.port, external=True, sources=sources)
            yield frontend._replace(passed_on=frontend.match if port.direct else ())
    for ip in port.own_ips:
        if (ipv6 := is_ipv6(ip)) in families and owner(facts, port, ip).key == port.key:
            sources = allowed_sources(port, node, ip)
            frontend = Frontend(ipv6, protocols[ipv6], dst(ip), port.port, external=True, sources=sources)
            yield frontend
            yield frontend._replace(to=dst(OWN_IPS[ipv6]), port=own_port(facts, port, ip))


def allowed_sources(port: ServicePort, node: ThisNode, ip: str) -> tuple[Match, ...]:
    """Return hosts that reach the address; this Node sends with the address of its gateway. An invalid range allows none."""
    ipv6 = is_ipv6(ip)
    ranges = [source for source in port.source_ranges if not source or is_ipv6(source) == ipv6]
    if ip not in port.guarded_ips or not ranges:
        return (ANY,)
    networks = [source for source in ranges if source]
    gateways = [gateway_ip(cidr) for cidr in node.pod_cidrs if is_ipv6(cidr) == ipv6]
    if any(held(node_ip, networks) for node_ip in node.node_ips if is_ipv6(node_ip) == ipv6):
        networks += gateways
    return tuple(dict.fromkeys(src(network) for network in networks))


def frontend_flows(facts: Facts, port: ServicePort, frontend: Frontend) -> Iterator[Flow]:
    """Yield flows for the first packet of a connection to one address."""
    ipv6, local = frontend.ipv6, port.external_local if frontend.external else port.internal_local
    number = frontend_group(facts, port, frontend)
    to_select = EP_TO_SELECT_REG_MARK.match
    then = (
        DROP
        if frontend.external and passed_by(facts, port, ipv6=ipv6)
        else chooses(facts, port, frontend, number)
    )
    for source in frontend.sources:
        yield flow(SERVICE_LB, Priority.NORMAL, *frontend.match, source, to_select, then=then)
        if frontend.external and local:
            # what is of this cluster does not ask for its own source address to be kept
            everywhere = chooses(facts, port, frontend, group_id(facts, port, ipv6=ipv6, local=False))
            of_us = (source, to_select, FROM_LOCAL_REG_MARK.match)
            yield flow(SERVICE_LB, Priority.HIGH, *frontend.match, *of_us, then=everywhere)
    if frontend.guarded:
        yield flow(SERVICE_LB, REFUSED, *frontend.match, then=DROP)
    for source in (
        frontend.sources if frontend.guarded and (port.affinity_seconds or frontend.passed_on) else ()
    ):
        # the choice was learned, maybe before the address refused some
        learned = (source, EP_SELECTED_REG_MARK.match)
        yield flow(SERVICE_LB, Priority.NORMAL, *frontend.match, *learned, then=[goto(NEXT)])
    if port.affinity_seconds:
        yield affinity_flow(facts, port, frontend, number)
    if frontend.passed_on:
        yield from direct_flows(facts, port, frontend)


def direct_flows(facts: Facts, port: ServicePort, frontend: Frontend) -> Iterator[Flow]:
    """Yield flows that mark packets to an Endpoint on another Node, and choose an Endpoint here for those from another Node."""
    here, all_ = (group_id(facts, port, ipv6=frontend.ipv6, local=local) for local in (True, False))
    from_node = (EP_TO_SELECT_REG_MARK.match, from_peer(facts))
    then = chooses(facts, port, frontend, here)
    yield flow(SERVICE_LB, Priority.HIGH, *frontend.match, *from_node, then=then)
    object_id = learned_id(facts, port, frontend, all_, DSR)
    yield marking_flow(frontend.passed_on, port.protocol, object_id, ipv6=frontend.ipv6)


def passed_by(facts: Facts, port: ServicePort, *, ipv6: bool) -> bool:
    """With the external traffic policy Local, load balancers send packets to Nodes that have an Endpoint; this one has none.

    Where no Node has any, the packet is rejected.
    """
    states = facts.get(EndpointStates, states_key(port.behind, ipv6=ipv6)) if port.external_local else None
    return states is not None and not states.chosen(local=True) and bool(states.chosen(local=False))


def chooses(facts: Facts, port: ServicePort, frontend: Frontend, number: int) -> list[Action]:
    """Return actions that record the Service in the packet before a group chooses an Endpoint."""
    state = EP_TO_LEARN_REG_MARK if port.affinity_seconds else EP_SELECTED_REG_MARK
    marks = [REWRITE_MAC_REG_MARK, state, *noted(facts, port, frontend, number)]
    return [*(mark.load for mark in marks), group(number)]


def noted(facts: Facts, port: ServicePort, frontend: Frontend, number: int) -> tuple[Mark, ...]:
    """How the Service was asked: decides on translation of the source.

    Rules on Services read the number of the group, and so does the check of what clients have learned.
    """
    gates = facts.get(EnabledGates)
    external = (TO_EXTERNAL_ADDRESS_REG_MARK,) if frontend.external else ()
    by_rules = gates is not None and "AntreaPolicy" in gates
    marks = (SERVICE_GROUP_ID(number),) if by_rules or is_remembered(port) else ()
    return (*external, *marks)


def affinity_flow(facts: Facts, port: ServicePort, frontend: Frontend, number: int) -> Flow:
    """Make the flow that remembers the choice for the client."""
    object_id = learned_id(facts, port, frontend, number)
    remember = learned_choice(port, object_id, external=frontend.external, ipv6=frontend.ipv6)
    return flow(
        SERVICE_LB,
        Priority.LOW,
        *frontend.match,
        EP_TO_LEARN_REG_MARK.match,
        then=[remember, EP_SELECTED_REG_MARK.load, goto(NEXT)],
        object_id=object_id,
    )


def learned_id(facts: Facts, port: ServicePort, frontend: Frontend, number: int, kind: str = AFFINITY) -> int:
    """Return the object id of learned flows of one address: it goes with the address, also where the Service keeps others."""
    return facts.id(LEARNED, f"{kind} {port.key} {','.join(frontend.match)} {number}")


def affinity_ids(facts: Facts, port: ServicePort, node: ThisNode) -> Iterator[int]:
    """Yield the object ids of all learned flows of a port with session affinity."""
    for frontend in frontends(facts, port, node):
        yield learned_id(facts, port, frontend, frontend_group(facts, port, frontend))


def frontend_group(facts: Facts, port: ServicePort, frontend: Frontend) -> int:
    """Return the number of the group that chooses for packets to an address that are not from this cluster."""
    local = port.external_local if frontend.external else port.internal_local
    return group_id(facts, port, ipv6=frontend.ipv6, local=local)


def learned_choice(port: ServicePort, object_id: int, *, external: bool, ipv6: bool) -> Action:
    """Further connections of the client to this address and port get the same Endpoint, for as long as the Service sets.

    Each is checked against the Endpoints of the group that chose it (`remembered_flow`): upstream's are checked against those of
    all Services. By that number policies match the Service, too: upstream's learned flows pass by rules with `toServices`.
    """
    protocol = port.protocol.lower()
    loads = [learn.learned_load(TO_EXTERNAL_ADDRESS_REG_MARK)] if external else []
    return learn.learn(
        SESSION_AFFINITY,
        Priority.NORMAL,
        cookie_of=(Category.SERVICE, object_id),
        timeouts=[learn.hard_timeout(min(port.affinity_seconds, MAX_TIMEOUT_SECONDS))],
        specs=[
            *learn.same_protocol(protocol, v6=ipv6),
            learn.same_dst_port(protocol),
            learn.same_dst(v6=ipv6),
            learn.same_src(v6=ipv6),
            learn.learned_copy(ENDPOINT_PORT),
            learn.learned_copy(REMOTE_ENDPOINT, REMEMBERED_REMOTE if port.direct else None),
            learn.learned_copy(ENDPOINT_IP6 if ipv6 else ENDPOINT_IP),
            learn.learned_load(EP_REMEMBERED_REG_MARK),
            learn.learned_load(REWRITE_MAC_REG_MARK),
            *loads,
            learn.learned_copy(SERVICE_GROUP_ID),
        ],
    )
