"""Endpoints in the switch: buckets of the groups that choose one, translation to the chosen one, hairpins.

parity: pkg/agent/openflow/pipeline.go serviceEndpointGroup, endpointDNATFlow, podHairpinSNATFlow; third_party/proxy/topology.go
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.member import AgentNode
from antrea.facts.node import ThisNode
from antrea.facts.service import (
    UNAVAILABLE,
    EndpointState,
    EndpointStates,
    ServiceEndpoint,
    ServicePort,
    states_key,
)
from antrea.features.framework.gate import EnabledGates
from antrea.features.proxy.direct_path import is_passed_on
from antrea.features.proxy.dsr import still_there
from antrea.openflow.action import move, resubmit, resubmit_after
from antrea.openflow.cookie import Category
from antrea.openflow.ct import ct, nat_dst
from antrea.openflow.fields import (
    CONN_SNAT_CT_MARK,
    CONN_SOURCE_CT_MARK,
    ENDPOINT_IP,
    ENDPOINT_IP6,
    ENDPOINT_PORT,
    EP_REMEMBERED_REG_MARK,
    EP_SELECTED_REG_MARK,
    EP_UNION,
    HAIRPIN_CT_MARK,
    NODE_PORT_CT_LABEL,
    PKT_SOURCE,
    REMOTE_ENDPOINT_REG_MARK,
    SERVICE_CT_MARK,
    SERVICE_GROUP_CT_LABEL,
    SERVICE_GROUP_ID,
    TO_NODE_PORT_ADDRESS,
    Zone,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.group import BY_CONNECTION, CONSISTENT, Bucket, Group, GroupType
from antrea.openflow.match import PROTOCOLS, ct_state, dst, later_fragment6, src
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT
from antrea.openflow.tables import ENDPOINT_DNAT, SERVICE_LB, SNAT_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.ovs import PodInterface
    from antrea.openflow.field import Action, Match

GROUPS = "group"
"""Pool of the numbers of groups, of all features."""
BUCKETS = "endpoint"
"""Pool of the numbers of buckets: an Endpoint has the same one in every group, but another one as a remote one."""
RECENT = 1024
"""Number of addresses and ports whose texts are cached."""
WEIGHT = 100
SAME_NODE_GATE = "PreferSameTrafficDistribution"
ZONE_LABEL = "topology.kubernetes.io/zone"
_ASKED = (move(SERVICE_GROUP_ID, SERVICE_GROUP_CT_LABEL), move(TO_NODE_PORT_ADDRESS, NODE_PORT_CT_LABEL))
"""Actions that store the requested Service with its connection."""
flow = flows_of(Category.SERVICE)


def group_id(facts: Facts, port: ServicePort, *, ipv6: bool, local: bool) -> int:
    """Return the number of the group that chooses among all Endpoints of a port, or only among this Node's."""
    scope = "local" if local else "cluster"
    return facts.id(GROUPS, f"service {port.key} {'IPv6' if ipv6 else 'IPv4'} {scope}")


def port_group(facts: Facts, port: ServicePort, bucket_: Bucket, *, ipv6: bool, local: bool) -> Group:
    """The group that chooses among Endpoints of a port, with one of its buckets."""
    number = group_id(facts, port, ipv6=ipv6, local=local)
    return Group(number, GroupType.SELECT, (bucket_,), Category.SERVICE, selection(facts, port))


def selection(facts: Facts, port: ServicePort) -> str:
    """Return the selection method of the groups of a port."""
    if port.consistent:
        return CONSISTENT
    return BY_CONNECTION if port.protocol == "UDP" and is_userspace(facts) else ""


def is_userspace(facts: Facts) -> bool:
    """Whether the datapath is that of ovs-vswitchd itself."""
    config = facts.get(AgentConfig)
    return config is not None and config.ovs_datapath_type == "netdev"


def scopes(port: ServicePort, *, ipv6: bool) -> tuple[bool, ...]:
    """Return the scopes for which a port has a group in one family: the cluster (False), this Node (True)."""
    internal = ipv6 in port.families
    external = internal and (bool(port.node_port) or any(is_ipv6(ip) == ipv6 for ip in port.outside_ips))
    local = (internal and port.internal_local) or (external and (port.external_local or port.direct))
    cluster = (internal and not port.internal_local) or external
    return tuple(scope for scope, wanted in ((False, cluster), (True, local)) if wanted)


@lru_cache(RECENT)
def _address(ip: str) -> tuple[Action, Match]:
    """Return the action that chooses the address, and its match: a bucket and a translation need the same one after the other."""
    if is_ipv6(ip):
        mark = ENDPOINT_IP6(int(ip_address(ip)))
    else:
        mark = ENDPOINT_IP(int.from_bytes(map(int, ip.split("."))))
    return mark.load, mark.match


@lru_cache(RECENT)
def _port(port: int) -> tuple[Action, Match]:
    """Return the action that chooses the port, and its match where an Endpoint is chosen."""
    union = EP_UNION((EP_SELECTED_REG_MARK.value << ENDPOINT_PORT.width) | port)
    return ENDPOINT_PORT(port).load, union.match


def is_remote(facts: Facts, endpoint: ServiceEndpoint, node: ThisNode) -> bool:
    """Whether it is a Pod of another Node: not one with the address of a Node."""
    return endpoint.node != node.name and not facts.by(AgentNode, "ip", endpoint.ip)


def is_used(facts: Facts, endpoint: ServiceEndpoint, node: ThisNode, *, local: bool) -> bool:
    """Whether it gets new connections: a draining one only if none is ready."""
    if local and endpoint.node != node.name:
        return False
    states = facts.get(EndpointStates, states_key(endpoint.behind, ipv6=is_ipv6(endpoint.ip)))
    return states is not None and state_of(facts, endpoint, node) in states.chosen(local=local)


def state_of(facts: Facts, endpoint: ServiceEndpoint, node: ThisNode) -> EndpointState:
    """Return the state of an Endpoint for this Node."""
    gates = facts.get(EnabledGates) if endpoint.nodes else None
    by_node = endpoint.nodes if gates is not None and SAME_NODE_GATE in gates else ()
    return _state(
        endpoint.state,
        endpoint.node == node.name,
        (zone_of(facts, node) in endpoint.zones) if endpoint.zones else None,
        (node.name in by_node) if by_node else None,
    )


_state = lru_cache(RECENT)(EndpointState)
"""Cache with one object for all Endpoints of a kind."""


def zone_of(facts: Facts, node: ThisNode) -> str:
    """The zone of this Node; empty if it is in none."""
    row = facts.get(AgentNode, node.name)
    return dict(row.labels).get(ZONE_LABEL, "") if row else ""


# units


def endpoint_states(facts: Facts, endpoint: ServiceEndpoint) -> Iterator[EndpointStates]:
    """Yield the facts of an Endpoint that others of the port need; none if it gets no connections in any case."""
    node = facts.get(ThisNode)
    if node is not None and endpoint.state != UNAVAILABLE:
        yield EndpointStates(endpoint.behind, is_ipv6(endpoint.ip), (state_of(facts, endpoint, node),))


def endpoint_entries(facts: Facts, endpoint: ServiceEndpoint) -> Iterator[Group | Flow]:
    """Yield a bucket in each group that may choose it, and the translation to it."""
    node, ipv6 = facts.get(ThisNode), is_ipv6(endpoint.ip)
    if node is None:
        return
    translated = sticky = False
    for port in facts.by(ServicePort, "behind", endpoint.behind):
        for local in scopes(port, ipv6=ipv6):
            if is_used(facts, endpoint, node, local=local):
                chosen_bucket = bucket(facts, port, endpoint, node)
                yield port_group(facts, port, chosen_bucket, ipv6=ipv6, local=local)
                translated = True
                if is_remembered(port):
                    yield remembered_flow(group_id(facts, port, ipv6=ipv6, local=local), endpoint)
                if port.direct and port.affinity_seconds:
                    sticky |= goes_on(facts, port, endpoint, node)
    if translated:
        yield translation(facts, endpoint, chosen_match(endpoint))
        if ipv6 and endpoint.protocol == "UDP" and is_userspace(facts):
            yield translation(facts, endpoint, (later_fragment6, *chosen_match(endpoint)[1:]))
    if sticky:
        yield still_there(chosen_match(endpoint))


def is_remembered(port: ServicePort) -> bool:
    """Whether clients learn an Endpoint of this port that has to be looked up again.

    Direct server return remembers connections. Those of TCP and SCTP end with their Endpoint; UDP has no end.
    """
    return bool(port.affinity_seconds) or (port.direct and port.protocol == "UDP")


def remembered_flow(number: int, endpoint: ServiceEndpoint) -> Flow:
    """A client stays with an Endpoint for as long as the group that chose it has a bucket of it.

    Endpoints of other Services with this address and port do not count: they may be other workloads by now.
    """
    state = EP_UNION((EP_REMEMBERED_REG_MARK.value << ENDPOINT_PORT.width) | endpoint.port).match
    protocol, address, _ = chosen_match(endpoint)
    match = (protocol, SERVICE_GROUP_ID(number).match, address, state)
    then = [EP_SELECTED_REG_MARK.load, resubmit(SERVICE_LB)]
    return flow(SERVICE_LB, Priority.NORMAL, *match, then=then)


def goes_on(facts: Facts, port: ServicePort, endpoint: ServiceEndpoint, node: ThisNode) -> bool:
    """Whether it is on another Node, and gets untranslated packets there if its Service requests that."""
    return is_remote(facts, endpoint, node) and (not port.direct or is_passed_on(facts, endpoint))


def bucket(facts: Facts, port: ServicePort, endpoint: ServiceEndpoint, node: ThisNode) -> Bucket:
    """Make the bucket; with session affinity, the choice has to be learned first."""
    remote = (REMOTE_ENDPOINT_REG_MARK.load,) if goes_on(facts, port, endpoint, node) else ()
    then = resubmit(SERVICE_LB) if port.affinity_seconds else resubmit_after(SERVICE_LB)
    # slices may disagree on its Node: two buckets of one number would be refused, and the group with them
    number = facts.id(BUCKETS, f"{endpoint.address}{' remote' if remote else ''}")
    return Bucket(number, (*remote, _address(endpoint.ip)[0], _port(endpoint.port)[0], then), WEIGHT)


def translation(facts: Facts, endpoint: ServiceEndpoint, chosen: tuple[Match, ...]) -> Flow:
    """Make the flow for the first packet of a connection for which the Endpoint is chosen: connection tracking translates the
    rest.
    """
    ipv6 = is_ipv6(endpoint.ip)
    translate = ct(
        Zone.CT_ZONE_V6 if ipv6 else Zone.CT_ZONE,
        commit=True,
        table=NEXT,
        nat=nat_dst(endpoint.ip, endpoint.port),
        then=[SERVICE_CT_MARK.load, *(_ASKED if is_userspace(facts) else ())],
    )
    return flow(ENDPOINT_DNAT, Priority.NORMAL, *chosen, then=[translate])


def chosen_match(endpoint: ServiceEndpoint) -> tuple[Match, ...]:
    """Match packets for which this Endpoint is chosen."""
    _, address = _address(endpoint.ip)
    _, port = _port(endpoint.port)
    return PROTOCOLS[endpoint.protocol][is_ipv6(endpoint.ip)], address, port


def hairpin_flows(_facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """Yield flows for a Pod that a Service sends to itself: with its own address as source it would answer past the switch."""
    for ip in pod.ips:
        commit = ct(
            Zone.CT_ZONE_V6 if is_ipv6(ip) else Zone.CT_ZONE,
            commit=True,
            table=NEXT,
            then=[CONN_SNAT_CT_MARK.load, HAIRPIN_CT_MARK.load, move(PKT_SOURCE, CONN_SOURCE_CT_MARK)],
        )
        yield flow(SNAT_MARK, Priority.LOW, ct_state("+new+trk"), src(ip), dst(ip), then=[commit])
