"""Flows of one Traceflow: packets with its tag go to the agent where they leave the pipeline, and where they are dropped.

Packets of live traffic get the tag first, and lose it on their way out. All flows expire after the timeout, should this agent
not live to remove them.
parity: pkg/agent/openflow/pipeline.go flowsToTrace
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from antrea.config.agent import AgentConfig
from antrea.facts.family import is_ipv6
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.diversion import diversions
from antrea.features.network_policy.agent.conjunction import target_matches
from antrea.features.network_policy.agent.isolation import closed_tables, closing_priority
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.node_route.way import needs_tunnel, shared_cidrs
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT
from antrea.host.pod_cidr import held
from antrea.openflow import packet
from antrea.openflow.action import DROP, controller, goto, meter, output, resubmit, set_dscp
from antrea.openflow.cookie import Category
from antrea.openflow.ct import NAT, ct
from antrea.openflow.fields import (
    AP_DENY_REG_MARK,
    AUDIT_PASS,
    FROM_POD_REG_MARK,
    L7_NP_REDIRECT_CT_MARK,
    NOT_TRACE_INJECTED_REG_MARK,
    OUTPUT_TO_OF_PORT_REG_MARK,
    TARGET_OF_PORT,
    TRAFFIC_CONTROL_REDIRECT_REG_MARK,
    TRAFFIC_CONTROL_TARGET_OF_PORT,
    PacketIn,
    Zone,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import (
    ct_state,
    dl_dst,
    dscp,
    dst,
    icmp,
    icmp6,
    in_port,
    ip,
    ipv6,
    nw_proto,
    src,
    tcp,
    tcp6,
    tp_dst,
    tp_src,
    udp,
    udp6,
)
from antrea.openflow.meter import PacketInMeter
from antrea.openflow.priority import Priority
from antrea.openflow.table import Stage
from antrea.openflow.tables import (
    CONNTRACK_STATE,
    CONNTRACK_ZONE,
    L2_FORWARDING_CALC,
    OUTPUT,
    TRAFFIC_CONTROL,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.engine import Facts
    from antrea.features.traceflow.preparation import PreparedTrace
    from antrea.features.traceflow.trace import RunningTrace
    from antrea.openflow.field import Action, Match
    from antrea.openflow.table import Table

_flow = flows_of(Category.TRACEFLOW)
ABOVE = 2
"""Difference of priority between copies and the flows whose packets they send to the agent."""
TO_AGENT = (meter(PacketInMeter.TRACEFLOW), controller(PacketIn.TRACEFLOW))
"""Actions to the agent; OVS requires meters before all other actions."""
NAMED: dict[int, tuple[Match, Match]] = {
    packet.TCP: (tcp, tcp6),
    packet.UDP: (udp, udp6),
    packet.ICMP: (icmp, icmp6),
    packet.ICMPV6: (icmp, icmp6),
}
"""Protocols with a name: matches over IPv4 and over IPv6."""


class Leaving(IntEnum):
    """Priorities in the table Output: above those of diverted packets, of hairpins and of the L7 engine."""

    OTHER = Priority.HIGH + 4
    NODE = Priority.HIGH + 5
    REDIRECTED = Priority.HIGH + 6
    ENGINE = Priority.HIGH + 7


class _Maker(Protocol):
    def __call__(self, table: Table, priority: int, *match: Match, then: Iterable[Action]) -> Flow: ...


def maker(trace: RunningTrace) -> _Maker:
    """Return the maker of the flows of this trace: they differ from those of any other with its tag, and end with its timeout."""
    cookie_of_trace = zlib.crc32(trace.uid.encode())

    def made(table: Table, priority: int, *match: Match, then: Iterable[Action]) -> Flow:
        return _flow(
            table, priority, *match, then=then, hard_timeout=trace.timeout, object_id=cookie_of_trace
        )

    return made


def family(trace: RunningTrace) -> Match:
    """Return `ip` or `ipv6`."""
    return ipv6 if trace.ipv6 else ip


def tagged(trace: RunningTrace) -> tuple[Match, Match]:
    """Match packets of the trace."""
    return family(trace), dscp(trace.tag)


def injected_flows(trace: RunningTrace) -> Iterator[Flow]:
    """Yield flows by which connection tracking's state does not drop an injected packet; what looks like an answer is not a
    trace.
    """
    flow = maker(trace)
    flow_of = tagged(trace)
    yield flow(CONNTRACK_STATE, Priority.LOW + 1, *flow_of, then=[goto(Stage.PRE_ROUTING)])
    yield flow(CONNTRACK_STATE, Priority.LOW + 2, *flow_of, ct_state("+rpl+trk"), then=DROP)


def forged_flow(trace: RunningTrace) -> Flow:
    """Make the flow for a Pod's own packets with the tag: they lose it, and continue as any packet does."""
    zone = Zone.CT_ZONE_V6 if trace.ipv6 else Zone.CT_ZONE
    from_pod = (FROM_POD_REG_MARK.match, NOT_TRACE_INJECTED_REG_MARK.match)
    then = [set_dscp(0), ct(zone, table=CONNTRACK_STATE, nat=NAT)]
    return maker(trace)(CONNTRACK_ZONE, Priority.HIGH, *tagged(trace), *from_pod, then=then)


def marking_flow(trace: RunningTrace, prepared: PreparedTrace) -> Flow:
    """Make the flow that tags the first packet of a requested connection: where it is sent, or where it arrives."""
    headers, flow = prepared.headers, maker(trace)
    if trace.receiver_only:
        sources = (src(headers.source),) if headers.source else ()
        then = [TARGET_OF_PORT(prepared.ofport).load, OUTPUT_TO_OF_PORT_REG_MARK.load, set_dscp(trace.tag)]
        match = (ct_state("+new+trk"), dl_dst(headers.destination_mac), *_protocol(trace, prepared), *sources)
        return flow(L2_FORWARDING_CALC, Priority.HIGH, *match, then=[*then, goto(Stage.INGRESS_SECURITY)])
    destinations = (dst(headers.destination),) if headers.destination else ()
    match = (ct_state("+new+trk"), in_port(prepared.ofport), *_protocol(trace, prepared), *destinations)
    return flow(CONNTRACK_STATE, Priority.LOW, *match, then=[set_dscp(trace.tag), goto(Stage.PRE_ROUTING)])


def _protocol(trace: RunningTrace, prepared: PreparedTrace) -> Iterator[Match]:
    headers = prepared.headers
    if headers.protocol in NAMED:
        yield NAMED[headers.protocol][trace.ipv6]
    else:
        yield family(trace)
        if headers.protocol:
            yield nw_proto(headers.protocol)
    if headers.protocol in (packet.TCP, packet.UDP):
        if headers.source_port:
            yield tp_src(headers.source_port)
        if headers.destination_port:
            yield tp_dst(headers.destination_port)


def output_flows(facts: Facts, trace: RunningTrace) -> Iterator[Flow]:
    """Where a packet leaves: a copy goes to the agent, above all flows by which packets leave.

    What is injected ends at Pods, at the gateway (unless its way to another Node is there) and before the L7 engine, and no copy of it is mirrored. A packet
    of live traffic loses its tag, and then leaves as any packet does.
    """
    flow, to_agent = maker(trace), () if trace.dropped_only else TO_AGENT
    live = trace.spec.live_traffic
    onward: tuple[Action, ...] = (set_dscp(0), resubmit(OUTPUT)) if live else ()
    leaves = (*tagged(trace), OUTPUT_TO_OF_PORT_REG_MARK.match)
    yield flow(OUTPUT, Leaving.ENGINE, *leaves, L7_NP_REDIRECT_CT_MARK.match, then=[*to_agent, *onward])
    aside = onward or (output(TRAFFIC_CONTROL_TARGET_OF_PORT),)
    redirected = TRAFFIC_CONTROL_REDIRECT_REG_MARK.match
    yield flow(OUTPUT, Leaving.REDIRECTED, *leaves, redirected, then=[*to_agent, *aside])
    # with its tag to another Node; resubmitted with no port to leave by, it leaves by those of its copies
    copies = (set_dscp(0), TARGET_OF_PORT(0).load, resubmit(OUTPUT)) if live else ()
    then = [*to_agent[:1], output(TARGET_OF_PORT), *to_agent[1:], *copies]
    for way in ways_to_nodes(facts, trace):
        yield flow(OUTPUT, Leaving.NODE, *leaves, *way, then=then)
    yield flow(OUTPUT, Leaving.OTHER, *leaves, then=[*to_agent, *onward])


def ways_to_nodes(facts: Facts, trace: RunningTrace) -> Iterator[tuple[Match, ...]]:
    """Yield matches of packets to Pods of other Nodes: the tunnel, and the gateway for those that the host routes as they are."""
    if (tunnel := facts.get(OvsPort, TUNNEL_PORT)) is not None:
        yield (TARGET_OF_PORT(tunnel.ofport).match,)
    config, node, named = facts.get(AgentConfig), facts.get(ThisNode), trace.spec.destination.ip
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    if config is None or node is None or gateway is None:
        return
    for peer in facts.all(PeerNode):
        for cidr in shared_cidrs(node, peer):
            is_meant = is_ipv6(cidr) == trace.ipv6 and (not named or held(named, (cidr,)))
            if is_meant and not needs_tunnel(facts, peer, ipv6=trace.ipv6):
                yield TARGET_OF_PORT(gateway.ofport).match, dst(cidr)


def drop_flows(facts: Facts, trace: RunningTrace) -> Iterator[Flow]:
    """Where a policy or a diversion drops a packet: it goes to the agent instead; not a copy that audited policies judge.

    All rules that deny drop in the tables of counters, where copies end before these flows.
    """
    flow, mine = maker(trace), tagged(trace)
    for diversion in diversions():
        for pod in facts.all(PodInterface):
            for way in diversion.closed(facts, pod):
                yield flow(TRAFFIC_CONTROL, diversion.closed_priority + 1, way, *mine, then=TO_AGENT)
    for here in (OUT, IN):
        yield flow(here.metric, Priority.NORMAL + ABOVE, *mine, AP_DENY_REG_MARK.match, then=TO_AGENT)
    for pod in facts.all(PodInterface):
        for here, table in closed_tables(facts, pod):
            first = () if table is here.default else (ct_state("+new+trk"),)
            for match in target_matches(here, pod):
                if _fits(match, trace):
                    priority = closing_priority(here, table) + (ABOVE if table is here.default else 1)
                    yield flow(table, priority, *match, *mine, *first, AUDIT_PASS(0).match, then=TO_AGENT)


def _fits(match: tuple[Match, ...], trace: RunningTrace) -> bool:
    """Whether the match of a Pod is of the trace's family, if of any."""
    families = {term for term_list in match for term in term_list.split(",") if term in ("ip", "ipv6")}
    return not families or family(trace) in families


def common_flows(facts: Facts, trace: RunningTrace) -> Iterator[Flow]:
    """Yield flows of every Node, wherever the trace begins."""
    if facts.get(RealizedPipeline) is None:
        return
    yield forged_flow(trace)
    yield from output_flows(facts, trace)
    yield from drop_flows(facts, trace)
    if not trace.spec.live_traffic:
        yield from injected_flows(trace)
