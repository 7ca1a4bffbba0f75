"""Flows that choose the Egress IP of packets that leave the cluster, and the Node that has it.

Their counters are the statistics of each Egress: every packet passes one of these flows, at the Node of its Pod, whichever Node
translates it; the flows by which the Egress Node takes packets from the tunnel are of addresses, which Egresses share. Upstream
counts none.

parity: pkg/agent/openflow/pipeline.go featureEgress externalFlows, snatSkipNodeFlow, snatIPFromTunnelFlow, snatRuleFlow
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.controlplane import NetworkPolicyReference
from antrea.apis.stats import TrafficStats
from antrea.config.agent import AgentConfig
from antrea.facts.egress import Egress, EgressMark, EgressOwner
from antrea.facts.family import is_ipv6
from antrea.facts.node import LocalAddress, PeerNode, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.service import ServicePort
from antrea.features.egress.agent.allocated import unallocated_reason
from antrea.features.egress.agent.bandwidth import limited
from antrea.features.egress.agent.handover import PASSED_ON, previous_holder, state_of
from antrea.features.egress.agent.multi_address import egresses_of
from antrea.features.egress.agent.snat_mark import POOL
from antrea.features.framework import packet_mark
from antrea.features.framework.gate import EnabledGates
from antrea.features.framework.traffic import EGRESS, Counted, Share, counter_increase
from antrea.features.network_policy.l7.tenant import GATE as L7_GATE
from antrea.features.node_route.way import tunnel_end
from antrea.features.proxy.agent import GATE as ANTREA_PROXY
from antrea.features.proxy.agent import handed_over
from antrea.host.carrier import crosses
from antrea.openflow.action import DROP, goto, set_eth_dst
from antrea.openflow.cookie import Category
from antrea.openflow.fields import (
    FROM_L7_NP_RETURN_REG_MARK,
    FROM_POD_REG_MARK,
    FROM_TUNNEL_REG_MARK,
    NOT_ANTREA_FLEXIBLE_IPAM_REG_MARK,
    REMOTE_SNAT_REG_MARK,
    TO_GATEWAY_REG_MARK,
    TO_TUNNEL_REG_MARK,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import ct_state, dst, family, in_port, ipv6, src
from antrea.openflow.match import ip as ipv4
from antrea.openflow.priority import Priority
from antrea.openflow.table import Stage
from antrea.openflow.tables import EGRESS_MARK, L3_FORWARDING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.facts.service import Service
    from antrea.features.framework.traffic import SeenCounters
    from antrea.openflow.field import Match
    from antrea.openflow.flow_count import FlowCount

flow = flows_of(Category.EGRESS)
EXCEPT = Priority.NORMAL + 1
"""Priority of exceptions from the Egress of a Pod."""
BY_MAC = Priority.NORMAL + 1
"""Priority above flows that match IPv4 tunnels, with which a packet by an IPv6 tunnel must not be compared."""
TAKEN_OVER = Priority.HIGH + 1
"""Priority above replies to connections from the gateway, which do not leave with an Egress IP."""
LEAVE = (TO_GATEWAY_REG_MARK.load, goto(Stage.SWITCHING))
"""Actions for packets that leave with the address that the host gives them."""


def egress_node_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Yield flows by which packets that leave the cluster get their Egress IP, except to this Node, Services and
    `egress.exceptCIDRs`.
    """
    config = facts.get(AgentConfig)
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    if config is None or gateway is None:
        return
    for version6 in sorted(node.families):
        packets = ipv6 if version6 else ipv4
        outwards = (packets, ct_state("-rpl+trk"))
        sources = (
            (FROM_POD_REG_MARK, FROM_L7_NP_RETURN_REG_MARK) if _inspects(facts) else (FROM_POD_REG_MARK,)
        )
        for source in sources:
            yield flow(
                L3_FORWARDING,
                Priority.LOW,
                *outwards,
                source.match,
                NOT_ANTREA_FLEXIBLE_IPAM_REG_MARK.match,
                then=[goto(EGRESS_MARK)],
            )
        yield flow(
            L3_FORWARDING,
            Priority.LOW,
            *outwards,
            FROM_TUNNEL_REG_MARK.match,
            then=[set_eth_dst(gateway.mac), goto(EGRESS_MARK)],
        )
        # A Pod of another Node must not leave with this Node's address when its Egress IP is not here (any more).
        yield flow(
            EGRESS_MARK,
            Priority.LOW,
            packets,
            ct_state("+new+trk"),
            FROM_TUNNEL_REG_MARK.match,
            then=DROP,
        )
    # kube-proxy of this Node serves what the Pod of a connection to a Service sends, the first packet and all others;
    # with AntreaProxy serviceCIDR has no meaning: what has its default may be an address outside
    services = () if _has_proxy(facts) else (cidr for cidr, _ in handed_over(facts, node))
    for place in (*node.node_ips, *config.egress.except_cidrs, *services):
        if is_ipv6(place) in node.families:
            yield unmarked(place)
    yield flow(EGRESS_MARK, Priority.MISS, then=LEAVE)


def unserved_flows(facts: Facts, service: Service) -> Iterator[Flow]:
    """Yield flows for Services that AntreaProxy leaves to another proxy of this Node."""
    node = facts.get(ThisNode)
    if node is None or not _has_proxy(facts) or facts.by(ServicePort, "service", service.key):
        return
    for ip in service.ips:
        if is_ipv6(ip) in node.families and ip not in service.external_ips:
            yield unmarked(ip)


def _inspects(facts: Facts) -> bool:
    """Whether packets may come back from the L7 engine, by a port that is not a Pod's."""
    gates = facts.get(EnabledGates)
    return gates is not None and L7_GATE in gates


def sent_by(facts: Facts, pod: PodInterface, *, v6: bool) -> Iterator[tuple[Match, ...]]:
    """Match packets of a Pod in one family: from its port, and returned from the L7 engine."""
    yield (in_port(pod.ofport),)
    if _inspects(facts):
        yield from ((FROM_L7_NP_RETURN_REG_MARK.match, src(ip)) for ip in pod.ips if is_ipv6(ip) == v6)


def _has_proxy(facts: Facts) -> bool:
    gates = facts.get(EnabledGates)
    return gates is not None and ANTREA_PROXY in gates


def unmarked(place: str) -> Flow:
    """Make the flow by which packets to this address or CIDR bypass Egress."""
    return flow(EGRESS_MARK, Priority.HIGH, dst(place), then=LEAVE)


def egress_peer_flows(facts: Facts, peer: PeerNode) -> Iterator[Flow]:
    """Yield flows by which packets to another Node bypass Egress."""
    node = facts.get(ThisNode)
    if node is None:
        return
    for ip in peer.node_ips:
        if is_ipv6(ip) in node.families:
            yield unmarked(ip)


def local_flows(facts: Facts, mark: EgressMark) -> Iterator[Flow]:
    """Yield flows for Pods of other Nodes that leave with an address of this one."""
    config = facts.get(AgentConfig)
    if config is None:
        return
    datapath = config.ovs_datapath_type
    yield flow(
        EGRESS_MARK,
        BY_MAC if crosses(datapath) and is_ipv6(mark.ip) else Priority.NORMAL,
        family(mark.ip),
        ct_state("+trk"),
        *packet_mark.match_tunnel_arrival(datapath, mark.ip),
        then=[*packet_mark.load_egress_mark(datapath, facts.id(POOL, mark.ip)), *limited(facts)],
    )
    gateway = facts.get(OvsPort, config.host_gateway)
    if gateway and any(row.survives for row in facts.by(Egress, "ip", mark.ip)):
        # the first packet that this Node received of a connection may be an answer: the Pod's packets are its replies then
        yield flow(
            L3_FORWARDING,
            TAKEN_OVER,
            family(mark.ip),
            ct_state("+rpl+trk"),
            *packet_mark.match_tunnel_arrival(datapath, mark.ip),
            then=[set_eth_dst(gateway.mac), goto(EGRESS_MARK)],
        )


def egress_pod_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """Yield one flow for each family in which an Egress selects the Pod."""
    families = {is_ipv6(ip): ip for ip in pod.ips}
    for version6, egress in egresses_of(facts, pod.pod):
        if version6 not in families:
            continue
        whole = [] if egress.cidrs else [family(families[version6])]
        targets = [*(dst(cidr) for cidr in egress.cidrs if is_ipv6(cidr) == version6), *whole]
        excepted = [dst(cidr) for cidr in egress.excepts if is_ipv6(cidr) == version6]
        for sent in sent_by(facts, pod, v6=version6):
            for target in targets:
                yield from pod_flow(facts, egress, (target, *sent))
            for target in excepted:
                yield flow(EGRESS_MARK, EXCEPT, target, *sent, then=LEAVE)


def pod_flow(facts: Facts, egress: Egress, mine: tuple[Match, ...]) -> Iterator[Flow]:
    """Yield the flow to the Egress IP here, or at another Node; without one, or without one of the 255 marks, nothing leaves."""
    config, node = facts.get(AgentConfig), facts.get(ThisNode)
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    if config is None or node is None or gateway is None:
        return
    ip, datapath = egress.ip, config.ovs_datapath_type
    if unallocated_reason(facts, egress):
        yield flow(EGRESS_MARK, Priority.NORMAL, *mine, ct_state("+trk"), then=DROP)
        return
    moves = state_of(facts, egress, node) in PASSED_ON
    elsewhere = moves or previous_holder(facts, egress, node) not in ("", node.name)
    here = facts.get(LocalAddress, ip) and not elsewhere
    if here and facts.get(EgressMark, ip):
        mark = facts.id(POOL, ip)
        then = [*packet_mark.load_egress_mark(datapath, mark), *limited(facts)]
        yield flow(EGRESS_MARK, Priority.NORMAL, *mine, ct_state("+trk"), then=then)
    elif here:
        yield flow(EGRESS_MARK, Priority.NORMAL, *mine, ct_state("+trk"), then=DROP)
    else:
        then = packet_mark.tunnel_to_egress_node(datapath, ip, end_of(facts, node, egress), gateway.mac)
        remote = [TO_TUNNEL_REG_MARK.load, REMOTE_SNAT_REG_MARK.load, goto(Stage.SWITCHING)]
        yield flow(EGRESS_MARK, Priority.NORMAL, *mine, then=[*then, *remote])


def end_of(facts: Facts, node: ThisNode, egress: Egress) -> str:
    """Return where tunnels to the Node that has the address end; empty while the Node is unknown.

    As long as no Node is found to hold it (this agent has just begun to gossip), the last holder may still have it; and a Node
    that hands it over does, until the next one has it.
    """
    owner = facts.get(EgressOwner, egress.key) if egress.pool else None
    wanted = owner.node if owner and owner.node else egress.node
    peer = facts.get(PeerNode, previous_holder(facts, egress, node) or wanted)
    return (peer and tunnel_end(node, peer)) or ""


def owner(facts: Facts, flow: FlowCount) -> str:
    """Return name and UID of the Egress, and the Pod's interface; empty if it is not a flow of a Pod with an Egress."""
    if flow.priority != Priority.NORMAL or flow.port is None:
        return ""
    for pod in facts.by(PodInterface, "ofport", flow.port):
        for version6, egress in egresses_of(facts, pod.pod):
            if version6 == flow.ipv6:
                return f"{egress.name} {egress.uid} {pod.name}"
    return ""


def increase(flow: FlowCount, whose: str, before: SeenCounters | None) -> TrafficStats:
    """Return what the Pod sent since the last look, by any Egress: one that takes another's place takes its flow."""
    if flow.drops:
        return TrafficStats()
    same = before and (not before.owner or _pod(before.owner) == _pod(whose))
    return counter_increase(flow, before if same else None)


def _pod(whose: str) -> str:
    return whose.rpartition(" ")[2]


def shares(_: Facts, whose: str) -> tuple[Share, ...]:
    """Return the share of the Egress."""
    name, uid, _pod = whose.split(" ")
    return (Share(NetworkPolicyReference(type=EGRESS, name=name, uid=uid), ""),)


def egress_exists(facts: Facts, share: Share) -> bool:
    """Whether the Egress exists; a later one of the same name is another."""
    return any(row.uid == share.policy.uid for row in facts.by(Egress, "name", share.policy.name))


COUNTED = Counted((EGRESS_MARK.name,), owner, increase, shares, egress_exists)
