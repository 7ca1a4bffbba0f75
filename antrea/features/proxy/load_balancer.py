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
"""Of a flow in OpenFlow."""
LEARNED = "learned flow"
"""Pool of the object ids of learned flows."""
AFFINITY = "affinity"
REFUSED = Priority.LOW - 10
"""Below all flows of those whose packets an address takes."""
NO_ENDPOINT = Bucket(0, (SVC_NO_EP_REG_MARK.load, resubmit(ENDPOINT_DNAT)), WEIGHT)
"""The only bucket of a group whose port has no Endpoint to choose: the agent rejects the packet."""
FRAGMENTS = (((udp, tp_dst(0)),), ((udp6, tp_dst(0)), (later_fragment6,)))
"""Of UDP in IPv4 and IPv6: the switch has 0 as the port of all, and does not see the protocol of later ones in IPv6."""
flow = flows_of(Category.SERVICE)


class Frontend(NamedTuple):
    """How packets to one address of a Service are known."""

    ipv6: bool
    protocol: Match
    to: Match
    port: int
    external: bool = False
    """It is reached from outside the cluster, so that the external traffic policy holds."""
    sources: tuple[Match, ...] = (ANY,)
    """Of whom it takes packets."""
    passed_on: tuple[Match, ...] = ()
    """How those of its packets are known that Endpoints on other Nodes answer directly; none: it has no such."""
    fragments: tuple[Match, ...] = ()
    """Fragments alone, known by this in place of protocol and port."""

    @property
    def match(self) -> tuple[Match, ...]:
        """Packets to it, without their sources."""
        if self.fragments:
            return (*self.fragments, self.to, ct_state("+new+trk"), ct_udp_dst(self.port))
        return (self.protocol, self.to, tp_dst(self.port))

    @property
    def guarded(self) -> bool:
        """Whether it refuses all others."""
        return self.sources != (ANY,)


# units


def service_entries(facts: Facts, port: ServicePort) -> Iterator[Flow | Group]:
    """The flows of each address, and what stands in for Endpoints where there is none."""
    node = facts.get(ThisNode)
    if node is None or port.protocol not in PROTOCOLS:
        return
    for ipv6 in sorted(node.families):
        states = facts.get(EndpointStates, states_key(port.behind, ipv6=ipv6))
        for local in scopes(port, ipv6=ipv6):
            if states is None or not states.chosen(local=local):
                yield port_group(facts, port, NO_ENDPOINT, ipv6=ipv6, local=local)
    fragments = has_fragments(facts, port)
    for found in frontends(facts, port, node):
        yield from frontend_flows(facts, port, found)
        for one in FRAGMENTS[found.ipv6] if fragments else ():
            yield from frontend_flows(facts, port, found._replace(fragments=one))


def has_fragments(facts: Facts, port: ServicePort) -> bool:
    """Whether fragments of a new connection get Endpoints, as on the userspace datapath, which tracks packets whole and takes
    them apart again before their ports are asked for.

    That of the last one becomes the connection's: none where the choice is not the group's alone.
    """
    by_more = port.affinity_seconds or port.direct or port.consistent
    return port.protocol == "UDP" and is_userspace(facts) and not by_more


def frontends(facts: Facts, port: ServicePort, node: ThisNode) -> Iterator[Frontend]:
    """Its ClusterIPs, NodePort and external addresses, in the families of its ClusterIPs."""
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
            found = Frontend(ipv6, protocols[ipv6], dst(ip), port.port, external=True, sources=sources)
            yield found._replace(passed_on=found.match if port.direct else ())
    for ip in port.own_ips:
        if (ipv6 := is_ipv6(ip)) in families and owner(facts, port, ip).key == port.key:
            sources = allowed_sources(port, node, ip)
            found = Frontend(ipv6, protocols[ipv6], dst(ip), port.port, external=True, sources=sources)
            yield found
            yield found._replace(to=dst(OWN_IPS[ipv6]), port=own_port(facts, port, ip))


def allowed_sources(port: ServicePort, node: ThisNode, ip: str) -> tuple[Match, ...]:
    """Hosts that reach the address; this Node sends with the address of its gateway. A range that cannot be read allows none."""
    ipv6 = is_ipv6(ip)
    ranges = [one for one in port.source_ranges if not one or is_ipv6(one) == ipv6]
    if ip not in port.guarded_ips or not ranges:
        return (ANY,)
    networks = [one for one in ranges if one]
    own = [gateway_ip(cidr) for cidr in node.pod_cidrs if is_ipv6(cidr) == ipv6]
    if any(held(one, networks) for one in node.node_ips if is_ipv6(one) == ipv6):
        networks += own
    return tuple(dict.fromkeys(src(one) for one in networks))


def frontend_flows(facts: Facts, port: ServicePort, found: Frontend) -> Iterator[Flow]:
    """The first packet of a connection to one address."""
    ipv6, local = found.ipv6, port.external_local if found.external else port.internal_local
    number = frontend_group(facts, port, found)
    to_select = EP_TO_SELECT_REG_MARK.match
    then = (
        DROP if found.external and passed_by(facts, port, ipv6=ipv6) else chooses(facts, port, found, number)
    )
    for source in found.sources:
        yield flow(SERVICE_LB, Priority.NORMAL, *found.match, source, to_select, then=then)
        if found.external and local:
            # what is of this cluster does not ask for its own source address to be kept
            everywhere = chooses(facts, port, found, group_id(facts, port, ipv6=ipv6, local=False))
            of_us = (source, to_select, FROM_LOCAL_REG_MARK.match)
            yield flow(SERVICE_LB, Priority.HIGH, *found.match, *of_us, then=everywhere)
    if found.guarded:
        yield flow(SERVICE_LB, REFUSED, *found.match, then=DROP)
    for source in found.sources if found.guarded and (port.affinity_seconds or found.passed_on) else ():
        # the choice was learned, maybe before the address refused some
        learned = (source, EP_SELECTED_REG_MARK.match)
        yield flow(SERVICE_LB, Priority.NORMAL, *found.match, *learned, then=[goto(NEXT)])
    if port.affinity_seconds:
        yield affinity_flow(facts, port, found, number)
    if found.passed_on:
        yield from direct_flows(facts, port, found)


def direct_flows(facts: Facts, port: ServicePort, found: Frontend) -> Iterator[Flow]:
    """What goes to an Endpoint on another Node is marked; of what has come from another Node an Endpoint here is chosen."""
    here, all_ = (group_id(facts, port, ipv6=found.ipv6, local=local) for local in (True, False))
    from_node = (EP_TO_SELECT_REG_MARK.match, from_peer(facts))
    then = chooses(facts, port, found, here)
    yield flow(SERVICE_LB, Priority.HIGH, *found.match, *from_node, then=then)
    own = learned_id(facts, port, found, all_, DSR)
    yield marking_flow(found.passed_on, port.protocol, own, ipv6=found.ipv6)


def passed_by(facts: Facts, port: ServicePort, *, ipv6: bool) -> bool:
    """With the external traffic policy Local, load balancers send packets to Nodes that have an Endpoint; this one has none.

    Where no Node has any, the packet is rejected.
    """
    states = facts.get(EndpointStates, states_key(port.behind, ipv6=ipv6)) if port.external_local else None
    return states is not None and not states.chosen(local=True) and bool(states.chosen(local=False))


def chooses(facts: Facts, port: ServicePort, found: Frontend, number: int) -> list[Action]:
    """What is noted of the packet before a group chooses an Endpoint for it."""
    state = EP_TO_LEARN_REG_MARK if port.affinity_seconds else EP_SELECTED_REG_MARK
    marks = [REWRITE_MAC_REG_MARK, state, *noted(facts, port, found, number)]
    return [*(mark.load for mark in marks), group(number)]


def noted(facts: Facts, port: ServicePort, found: Frontend, number: int) -> tuple[Mark, ...]:
    """How the Service was asked: decides on translation of the source.

    Rules on Services read the number of the group, and so does the check of what clients have learned.
    """
    gates = facts.get(EnabledGates)
    external = (TO_EXTERNAL_ADDRESS_REG_MARK,) if found.external else ()
    by_rules = gates is not None and "AntreaPolicy" in gates
    asked = (SERVICE_GROUP_ID(number),) if by_rules or is_remembered(port) else ()
    return (*external, *asked)


def affinity_flow(facts: Facts, port: ServicePort, found: Frontend, number: int) -> Flow:
    """The choice is remembered for the client."""
    own = learned_id(facts, port, found, number)
    remember = learned_choice(port, own, external=found.external, ipv6=found.ipv6)
    return flow(
        SERVICE_LB,
        Priority.LOW,
        *found.match,
        EP_TO_LEARN_REG_MARK.match,
        then=[remember, EP_SELECTED_REG_MARK.load, goto(NEXT)],
        object_id=own,
    )


def learned_id(facts: Facts, port: ServicePort, found: Frontend, number: int, kind: str = AFFINITY) -> int:
    """Object id of what clients learn at one address: it goes with the address, also where the Service keeps others."""
    return facts.id(LEARNED, f"{kind} {port.key} {','.join(found.match)} {number}")


def affinity_ids(facts: Facts, port: ServicePort, node: ThisNode) -> Iterator[int]:
    """Object ids of all that clients learn of a port with session affinity."""
    for found in frontends(facts, port, node):
        yield learned_id(facts, port, found, frontend_group(facts, port, found))


def frontend_group(facts: Facts, port: ServicePort, found: Frontend) -> int:
    """Number of the group that chooses for packets to an address that are not of this cluster."""
    local = port.external_local if found.external else port.internal_local
    return group_id(facts, port, ipv6=found.ipv6, local=local)


def learned_choice(port: ServicePort, own: int, *, external: bool, ipv6: bool) -> Action:
    """Further connections of the client to this address and port get the same Endpoint, for as long as the Service sets.

    Each is checked against the Endpoints of the group that chose it (`remembered_flow`): upstream's are checked against those of
    all Services. By that number policies match the Service, too: upstream's learned flows pass by rules with `toServices`.
    """
    protocol = port.protocol.lower()
    asked = [learn.learned_load(TO_EXTERNAL_ADDRESS_REG_MARK)] if external else []
    return learn.learn(
        SESSION_AFFINITY,
        Priority.NORMAL,
        cookie_of=(Category.SERVICE, own),
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
            *asked,
            learn.learned_copy(SERVICE_GROUP_ID),
        ],
    )
