"""Observations of a traced packet on its path through this Node.

parity: pkg/agent/controller/traceflow/packetin.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.crd.traceflow import (
    DIVERSION,
    CapturedPacket,
    IcmpHeader,
    IPHeader,
    IPv6Header,
    Observation,
    TcpHeader,
    TransportHeader,
    UdpHeader,
)
from antrea.config.agent import AgentConfig
from antrea.facts.egress import EgressMark
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.egress.agent.multi_address import egresses_of
from antrea.features.egress.agent.port_block import block_of
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.diversion import diversions
from antrea.features.framework.packet_mark import egress_mark_of
from antrea.features.network_policy.agent.deciding_rule import deciding_rule
from antrea.features.network_policy.agent.priority import IN, OUT
from antrea.features.network_policy.l7.tenant import GATE as ENGINE
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT
from antrea.host.pod_cidr import gateway_ip, held
from antrea.openflow.fields import (
    AP_CONJ_ID,
    FROM_POD_REG_MARK,
    L7_NP_REDIRECT_CT_MARK,
    PKT_SOURCE,
    REMOTE_SNAT,
    TARGET_OF_PORT,
    TRAFFIC_CONTROL_ACTION,
    TRAFFIC_CONTROL_MIRROR_REG_MARK,
    TRAFFIC_CONTROL_REDIRECT_REG_MARK,
    TRAFFIC_CONTROL_TARGET_OF_PORT,
)
from antrea.openflow.packet import ICMP, ICMPV6, TCP, UDP
from antrea.openflow.packet_in import (
    CT_IPV6_DST,
    CT_IPV6_SRC,
    CT_MARK,
    CT_NW_DST,
    CT_NW_SRC,
    TUN_DST,
    TUN_IPV6_DST,
)
from antrea.openflow.tables import OUTPUT, TRAFFIC_CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.framework.diversion import DivertedPod
    from antrea.features.network_policy.agent.priority import DirectionTables
    from antrea.features.traceflow.trace import RunningTrace
    from antrea.openflow.packet import Packet
    from antrea.openflow.packet_in import PacketIn

FORWARDED, DELIVERED, RECEIVED, DROPPED = "Forwarded", "Delivered", "Received", "Dropped"
REJECTED, LEFT = "Rejected", "ForwardedOutOfNetwork"
MIRRORED, REDIRECTED = "Mirrored", "Redirected"
POLICY, FORWARDING = "NetworkPolicy", "Forwarding"


class TracedPacket(NamedTuple):
    """A packet of a trace, as the switch sent it."""

    trace: RunningTrace
    packet_in: PacketIn
    read: Packet

    @property
    def source(self) -> str:
        """Source in the first packet of the connection; empty if there is no connection."""
        return self.packet_in.address(CT_NW_SRC, CT_IPV6_SRC)

    @property
    def destination(self) -> str:
        """Destination in the first packet of the connection."""
        return self.packet_in.address(CT_NW_DST, CT_IPV6_DST)


def observations(facts: Facts, packet: TracedPacket) -> tuple[Observation, ...]:
    """Return the observations in the order of the pipeline."""
    return tuple(_observed(facts, packet))


def is_sender(facts: Facts, packet: TracedPacket) -> bool:
    """Whether the packet has just come from the Pod at which the trace begins."""
    if packet.trace.receiver_only:
        return False
    pods = facts.by(PodInterface, "pod", packet.trace.pod)
    from_pod = packet.packet_in.value(PKT_SOURCE) == FROM_POD_REG_MARK.value
    return any(packet.packet_in.in_port == pod.ofport for pod in pods) or (bool(pods) and from_pod)


def _observed(facts: Facts, packet: TracedPacket) -> Iterator[Observation]:
    realized = facts.get(RealizedPipeline)
    table = realized.pipeline.name_of(packet.packet_in.table) if realized else ""
    if not table:
        return
    if is_sender(facts, packet):
        source = packet.source or packet.read.source
        yield Observation(component="SpoofGuard", action=FORWARDED, src_pod_ip=source)
    else:
        yield Observation(component=FORWARDING, action=RECEIVED)
    if not packet.trace.receiver_only:
        yield from _balanced(packet)
        yield from _allowed(facts, packet, OUT)
    yield from _allowed(facts, packet, IN)
    for here in (OUT, IN):
        if table == here.metric.name:
            yield _denied(facts, packet, here)
        elif table in (here.default.name, here.antrea.name, here.rule.name):
            yield Observation(component=POLICY, component_info=table, action=DROPPED)
    if table == TRAFFIC_CONTROL.name:
        yield Observation(component=DIVERSION, component_info=diverted_by(facts, packet), action=DROPPED)
    if table == OUTPUT.name:
        yield from _output(facts, packet)


def _balanced(packet: TracedPacket) -> Iterator[Observation]:
    """Yield the choice of an Endpoint; for a translated source only the source's zone is known, in which the destination is the
    Endpoint already.
    """
    read = packet.read
    source = packet.source not in ("", read.source)
    if source or packet.destination not in ("", read.destination):
        yield Observation(
            component="LB",
            action=FORWARDED,
            translated_dst_ip=read.destination,
            translated_src_ip=read.source if source else "",
        )


def _allowed(facts: Facts, packet: TracedPacket, here: DirectionTables) -> Iterator[Observation]:
    """Yield the rule that let the packet pass in this direction."""
    if number := packet.packet_in.value(here.register):
        decided = deciding_rule(facts, number)
        yield Observation(
            component=POLICY,
            component_info=here.rule.name,
            action=FORWARDED,
            network_policy=decided.policy if decided else "",
            network_policy_rule=decided.rule.name if decided else "",
        )


def _denied(facts: Facts, packet: TracedPacket, here: DirectionTables) -> Observation:
    decided = deciding_rule(facts, packet.packet_in.value(AP_CONJ_ID))
    return Observation(
        component=POLICY,
        component_info=here.metric.name,
        action=REJECTED if decided and decided.rule.action == "Reject" else DROPPED,
        network_policy=decided.policy if decided else "",
        network_policy_rule=decided.rule.name if decided else "",
    )


def diversion_at(facts: Facts, packet: TracedPacket) -> DivertedPod | None:
    """Return the diversion that has marked or dropped the packet: that of the Pod which it comes from, or goes to."""
    packet_in = packet.packet_in
    ways = {"Egress": packet_in.in_port, "Ingress": packet_in.value(TARGET_OF_PORT)}
    target, wanted = packet_in.value(TRAFFIC_CONTROL_TARGET_OF_PORT), packet_in.value(TRAFFIC_CONTROL_ACTION)
    pods = (pod for pod in facts.all(PodInterface) if pod.ofport in ways.values())
    for pod, diversion in ((pod, diversion) for pod in pods for diversion in diversions()):
        if (row := diversion.of_pod(facts, pod)) is None:
            continue
        fits = any(pod.ofport == at and row.direction in (way, "Both") for way, at in ways.items())
        is_it = row.redirects == (wanted != TRAFFIC_CONTROL_MIRROR_REG_MARK.value)
        if fits and is_it and row.ofport == target:
            return row
    return None


def diverted_by(facts: Facts, packet: TracedPacket) -> str:
    """Return the name of the object that diverts the packet; empty if unknown."""
    return row.name if (row := diversion_at(facts, packet)) else ""


def _diverted(facts: Facts, packet: TracedPacket, action: str) -> Observation:
    return Observation(component=DIVERSION, component_info=diverted_by(facts, packet), action=action)


def _output(facts: Facts, packet: TracedPacket) -> Iterator[Observation]:
    """Yield where the packet leaves this Node's switch."""
    packet_in, read = packet.packet_in, packet.read
    config = facts.get(AgentConfig)
    gateway = facts.get(OvsPort, config.host_gateway) if config else None
    tunnel = facts.get(OvsPort, TUNNEL_PORT)
    port, action, end = packet_in.value(TARGET_OF_PORT), DELIVERED, ""
    if aside := _aside(facts, packet):
        yield from aside
        return
    if tunnel is not None and port == tunnel.ofport:
        end = packet_in.address(TUN_DST, TUN_IPV6_DST)
        action = FORWARDED
        if packet_in.value(REMOTE_SNAT):
            yield _egress(facts, packet, "ForwardedToEgressNode")
    elif config and gateway and port == gateway.ofport and not _to_gateway(facts, read):
        if number := egress_mark_of(config.ovs_datapath_type, packet_in, read):
            yield _marked(facts, packet, number)
        action = FORWARDED if _of_a_node(facts, read.destination) else LEFT
    if packet_in.value(TRAFFIC_CONTROL_ACTION) == TRAFFIC_CONTROL_MIRROR_REG_MARK.value:
        yield _diverted(facts, packet, MIRRORED)
    yield Observation(
        component=FORWARDING,
        component_info=OUTPUT.name,
        action=action,
        tunnel_dst_ip=end,
        dst_mac=read.destination_mac.hex(":"),
        ttl=read.hops,
    )


def _aside(facts: Facts, packet: TracedPacket) -> tuple[Observation, ...]:
    """Return the observation of a diverted packet: it goes to an inspection first, by a diversion or a rule with
    application protocols.

    An injected packet is traced on where it comes back from there.
    """
    marks = int.from_bytes(packet.packet_in.fields.get(CT_MARK, b""))
    to_engine = marks >> L7_NP_REDIRECT_CT_MARK.field.lo & 1
    redirected = packet.packet_in.value(TRAFFIC_CONTROL_ACTION) == TRAFFIC_CONTROL_REDIRECT_REG_MARK.value
    if not (to_engine or redirected):
        return ()
    row = None if to_engine else diversion_at(facts, packet)
    returns = row is not None and row.returned and not packet.trace.spec.live_traffic
    out = Observation(
        component=FORWARDING,
        component_info=OUTPUT.name,
        action=FORWARDED if returns else REDIRECTED,
        dst_mac=packet.read.destination_mac.hex(":"),
        ttl=packet.read.hops,
    )
    if to_engine:
        return (Observation(component=POLICY, component_info=ENGINE, action=REDIRECTED), out)
    return (_diverted(facts, packet, REDIRECTED), out)


def _to_gateway(facts: Facts, read: Packet) -> bool:
    """Whether this Node itself gets it."""
    node = facts.get(ThisNode)
    return node is not None and read.destination in map(gateway_ip, node.pod_cidrs)


def _of_a_node(facts: Facts, address: str) -> bool:
    """Whether the address is that of a Pod of another Node: the kernel routes to it."""
    return any(held(address, node.pod_cidrs) for node in facts.all(PeerNode))


def _marked(facts: Facts, packet: TracedPacket, number: int) -> Observation:
    """Return the observation of an Egress, which is known at the Pod's Node, and its address at the address's Node."""
    if is_sender(facts, packet):
        return _egress(facts, packet, "MarkedForSNAT")
    ip = next((row.ip for row in facts.all(EgressMark) if row.mark == number), "")
    return Observation(component="Egress", action="MarkedForSNAT", egress_ip=ip)


def _egress(facts: Facts, packet: TracedPacket, action: str) -> Observation:
    chosen = dict(egresses_of(facts, packet.trace.pod)).get(packet.read.ipv6)
    if chosen is None:
        return Observation(component="Egress", action=action)
    block = block_of(facts, packet.trace.pod)
    return Observation(
        component="Egress",
        action=action,
        egress_ip=chosen.ip,
        egress=chosen.name,
        egress_node=chosen.node,
        egress_ports=f"{block.first}-{block.last}" if block else "",
    )


def captured(read: Packet) -> CapturedPacket:
    """Return the headers of a packet of live traffic."""
    return CapturedPacket(
        src_ip=read.source,
        dst_ip=read.destination,
        length=read.length,
        ipv6_header=IPv6Header(next_header=read.protocol, hop_limit=read.hops) if read.ipv6 else None,
        ip_header=None
        if read.ipv6
        else IPHeader(protocol=read.protocol, ttl=read.hops, flags=read.fragment_flags or None),
        transport_header=_transport(read),
    )


def _transport(read: Packet) -> TransportHeader:
    given, ports = read.payload, read.ports
    if read.protocol == TCP and ports and len(given) > 13:
        tcp = TcpHeader(src_port=ports[0], dst_port=ports[1], flags=given[13])
        return TransportHeader(tcp=tcp)
    if read.protocol == UDP and ports:
        return TransportHeader(udp=UdpHeader(src_port=ports[0], dst_port=ports[1]))
    if read.protocol in (ICMP, ICMPV6) and len(given) >= 8:
        echo = IcmpHeader(id=int.from_bytes(given[4:6]), sequence=int.from_bytes(given[6:8]))
        return TransportHeader(icmp=echo)
    return TransportHeader()
