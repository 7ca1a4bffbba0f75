"""Flows that connect Pods, the gateway and the tunnel of this Node.

parity: pkg/agent/openflow/pod_connectivity.go, pipeline.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.config.agent import AgentConfig
from antrea.engine import Facts, Unit
from antrea.facts.family import is_ipv6
from antrea.facts.node import ThisNode, Transport
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.agent_feature import AgentFeature, Families, RealizedPipeline
from antrea.features.pod_connectivity.tunnel import TUNNEL_PORT, tunnel_entry
from antrea.host.pod_cidr import gateway_ip
from antrea.openflow.action import (
    DEC_TTL,
    DROP,
    NORMAL,
    goto,
    move,
    output,
    set_eth_dst,
    set_eth_src,
)
from antrea.openflow.cookie import Category
from antrea.openflow.ct import NAT, ct
from antrea.openflow.fields import (
    CONN_SOURCE_CT_MARK,
    FROM_EXTERNAL_REG_MARK,
    FROM_GATEWAY_CT_MARK,
    FROM_GATEWAY_REG_MARK,
    FROM_LOCAL_REG_MARK,
    FROM_POD_REG_MARK,
    FROM_TUNNEL_REG_MARK,
    GLOBAL_VIRTUAL_MAC,
    NOT_CONN_SNAT_CT_MARK,
    NOT_REWRITE_MAC_REG_MARK,
    NOT_SERVICE_CT_MARK,
    OUTPUT_TO_OF_PORT_REG_MARK,
    PICKED_UP_CT_MARK,
    PKT_SOURCE,
    REWRITE_MAC_REG_MARK,
    SERVICE_CT_MARK,
    TARGET_OF_PORT,
    TO_GATEWAY_REG_MARK,
    Zone,
)
from antrea.openflow.flow import Flow, flows_of
from antrea.openflow.match import (
    PROTOCOLS,
    arp,
    arp_sha,
    arp_spa,
    ct_state,
    dl_dst,
    dl_src,
    dst,
    family,
    icmp6,
    icmp_code,
    icmp_type,
    in_port,
    ipv6,
    ipv6_dst,
    ipv6_src,
    src,
    tcp_flags,
)
from antrea.openflow.priority import Priority
from antrea.openflow.table import NEXT, Stage
from antrea.openflow.tables import (
    ARP_RESPONDER,
    ARP_SPOOF_GUARD,
    CLASSIFIER,
    CONNTRACK_COMMIT,
    CONNTRACK_STATE,
    CONNTRACK_ZONE,
    IPV6,
    L2_FORWARDING_CALC,
    L3_DEC_TTL,
    L3_FORWARDING,
    OUTPUT,
    SPOOF_GUARD,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.openflow.field import Match
    from antrea.openflow.table import Table

HIGH, NORMAL_PRIORITY, LOW, MISS = Priority.HIGH, Priority.NORMAL, Priority.LOW, Priority.MISS
flow = flows_of(Category.POD_CONNECTIVITY)


def tables(_config: AgentConfig, families: Families) -> tuple[Table, ...]:
    """Return the tables of this feature; those of ARP only with IPv4, that of neighbor discovery only with IPv6."""
    always = (CLASSIFIER, SPOOF_GUARD, CONNTRACK_ZONE, CONNTRACK_STATE, L3_FORWARDING, L3_DEC_TTL)
    arp_tables = (ARP_SPOOF_GUARD, ARP_RESPONDER) if families.ipv4 else ()
    ndp_tables = (IPV6,) if families.ipv6 else ()
    return (*always, L2_FORWARDING_CALC, CONNTRACK_COMMIT, OUTPUT, *arp_tables, *ndp_tables)


def spoof_guard_next(address: str) -> Table | Stage:
    """Return the table after SpoofGuard: IPv6 packets pass the IPv6 table, IPv4 packets skip it."""
    return IPV6 if is_ipv6(address) else Stage.CONNTRACK_STATE


def node_flows(facts: Facts, node: ThisNode) -> Iterator[Flow]:
    """Yield flows of every Node, with or without Pods; waits for the gateway port."""
    config = facts.need(AgentConfig)
    gateway = facts.need(OvsPort, config.host_gateway)
    yield flow(CONNTRACK_STATE, MISS, then=[goto(Stage.PRE_ROUTING)])
    yield flow(L3_FORWARDING, MISS, then=[TO_GATEWAY_REG_MARK.load, goto(Stage.SWITCHING)])
    yield flow(OUTPUT, NORMAL_PRIORITY, OUTPUT_TO_OF_PORT_REG_MARK.match, then=[output(TARGET_OF_PORT)])
    yield flow(
        CLASSIFIER,
        NORMAL_PRIORITY,
        in_port(gateway.ofport),
        then=[FROM_GATEWAY_REG_MARK.load, FROM_EXTERNAL_REG_MARK.load, goto(Stage.VALIDATION)],
    )
    yield l2_forwarding(gateway.mac, gateway.ofport)
    for cidr in node.pod_cidrs:
        yield from gateway_flows(gateway, cidr)
        yield from family_flows(cidr)
    if False in node.families:
        yield flow(ARP_RESPONDER, LOW, arp, then=[NORMAL])
    if True in node.families:
        yield from neighbour_discovery_flows()
    yield from tunnel_flows(facts)


def default_flows(_facts: Facts, realized: RealizedPipeline) -> Iterator[Flow]:
    """Yield the table-miss flow of every table."""
    yield from realized.pipeline.default_flows()


def tunnel_flows(facts: Facts) -> Iterator[Flow]:
    """Yield flows for packets that come out of the tunnel or go into it."""
    tunnel = facts.get(OvsPort, TUNNEL_PORT)
    if tunnel is None:
        return
    yield flow(
        CLASSIFIER,
        NORMAL_PRIORITY,
        in_port(tunnel.ofport),
        then=[FROM_TUNNEL_REG_MARK.load, REWRITE_MAC_REG_MARK.load, goto(Stage.CONNTRACK_STATE)],
    )
    yield l2_forwarding(GLOBAL_VIRTUAL_MAC, tunnel.ofport)


def gateway_flows(gateway: OvsPort, cidr: str) -> Iterator[Flow]:
    """Yield flows of the gateway as a source and as a destination, in one family."""
    address = gateway_ip(cidr)
    if not is_ipv6(cidr):
        yield flow(
            ARP_SPOOF_GUARD,
            NORMAL_PRIORITY,
            arp,
            in_port(gateway.ofport),
            arp_spa(address),
            arp_sha(gateway.mac),
            then=[goto(ARP_RESPONDER)],
        )
    yield flow(
        CLASSIFIER,
        HIGH,
        in_port(gateway.ofport),
        src(address),
        then=[FROM_GATEWAY_REG_MARK.load, FROM_LOCAL_REG_MARK.load, goto(Stage.VALIDATION)],
    )
    yield flow(
        SPOOF_GUARD,
        NORMAL_PRIORITY,
        family(cidr),
        in_port(gateway.ofport),
        then=[goto(spoof_guard_next(cidr))],
    )
    to_gateway = [set_eth_dst(gateway.mac), TO_GATEWAY_REG_MARK.load, goto(L3_DEC_TTL)]
    yield flow(L3_FORWARDING, HIGH, dst(address), then=to_gateway)
    # Replies of connections that came in by the gateway go back through it, where the host may have to translate them.
    yield flow(
        L3_FORWARDING, HIGH, family(cidr), ct_state("+rpl+trk"), FROM_GATEWAY_CT_MARK.match, then=to_gateway
    )


def family_flows(cidr: str) -> Iterator[Flow]:
    """Yield flows of connection tracking, local delivery and TTL, in one family."""
    ip_family, zone = family(cidr), Zone.CT_ZONE_V6 if is_ipv6(cidr) else Zone.CT_ZONE
    yield flow(CONNTRACK_ZONE, NORMAL_PRIORITY, ip_family, then=[ct(zone, table=CONNTRACK_STATE, nat=NAT)])
    yield flow(CONNTRACK_STATE, NORMAL_PRIORITY, ip_family, ct_state("+inv+trk"), then=DROP)
    tracked: tuple[Match, ...] = (ip_family, ct_state("-new+trk"))
    policies = goto(Stage.EGRESS_SECURITY)
    yield flow(CONNTRACK_STATE, LOW, *tracked, NOT_SERVICE_CT_MARK.match, then=[policies])
    yield flow(
        CONNTRACK_STATE, LOW, *tracked, SERVICE_CT_MARK.match, then=[REWRITE_MAC_REG_MARK.load, policies]
    )
    yield flow(
        L3_FORWARDING,
        NORMAL_PRIORITY,
        NOT_REWRITE_MAC_REG_MARK.match,
        dst(cidr),
        then=[goto(Stage.SWITCHING)],
    )
    # The host has counted the hop of what comes from the gateway.
    yield flow(L3_DEC_TTL, HIGH, ip_family, FROM_GATEWAY_REG_MARK.match, then=[goto(NEXT)])
    yield flow(L3_DEC_TTL, NORMAL_PRIORITY, ip_family, then=[DEC_TTL, goto(NEXT)])
    remember = ct(zone, commit=True, table=OUTPUT, then=[move(PKT_SOURCE, CONN_SOURCE_CT_MARK)])
    new = (ct_state("+new+trk"), NOT_CONN_SNAT_CT_MARK.match)
    yield flow(CONNTRACK_COMMIT, NORMAL_PRIORITY, ip_family, *new, then=[remember])
    # a segment that opens nothing is of a connection that tracking has lost, and may be sent by either end
    picked_up = ct(
        zone, commit=True, table=OUTPUT, then=[move(PKT_SOURCE, CONN_SOURCE_CT_MARK), PICKED_UP_CT_MARK.load]
    )
    tcp = PROTOCOLS["TCP"][is_ipv6(cidr)]
    for flags in ("-syn", "+syn+ack"):
        yield flow(CONNTRACK_COMMIT, HIGH, tcp, tcp_flags(flags), *new, then=[picked_up])


def neighbour_discovery_flows() -> Iterator[Flow]:
    """Yield flows that switch neighbor discovery and IPv6 multicast; link-local sources cannot be spoofed."""
    yield flow(SPOOF_GUARD, NORMAL_PRIORITY, ipv6, ipv6_src("fe80::/10"), then=[goto(IPV6)])
    for kind in (135, 136):
        yield flow(IPV6, NORMAL_PRIORITY, icmp6, icmp_type(kind), icmp_code(0), then=[NORMAL])
    yield flow(IPV6, NORMAL_PRIORITY, ipv6, ipv6_dst("ff00::/8"), then=[NORMAL])


def l2_forwarding(mac: str, ofport: int) -> Flow:
    """Yield the flow that outputs packets to a MAC address."""
    return flow(
        L2_FORWARDING_CALC,
        NORMAL_PRIORITY,
        dl_dst(mac),
        then=[TARGET_OF_PORT(ofport).load, OUTPUT_TO_OF_PORT_REG_MARK.load, goto(NEXT)],
    )


def pod_flows(facts: Facts, pod: PodInterface) -> Iterator[Flow]:
    """Yield flows of one Pod interface: its addresses are its own, and packets for them go to its port."""
    config = facts.need(AgentConfig)
    gateway = facts.need(OvsPort, config.host_gateway)
    yield flow(
        CLASSIFIER,
        LOW,
        in_port(pod.ofport),
        then=[FROM_POD_REG_MARK.load, FROM_LOCAL_REG_MARK.load, goto(Stage.VALIDATION)],
    )
    yield l2_forwarding(pod.mac, pod.ofport)
    for address in pod.ips:
        if not is_ipv6(address):
            yield flow(
                ARP_SPOOF_GUARD,
                NORMAL_PRIORITY,
                arp,
                in_port(pod.ofport),
                arp_spa(address),
                arp_sha(pod.mac),
                then=[goto(ARP_RESPONDER)],
            )
        yield flow(
            SPOOF_GUARD,
            NORMAL_PRIORITY,
            in_port(pod.ofport),
            dl_src(pod.mac),
            src(address),
            then=[goto(spoof_guard_next(address))],
        )
        yield flow(
            L3_FORWARDING,
            NORMAL_PRIORITY,
            REWRITE_MAC_REG_MARK.match,
            dst(address),
            then=[set_eth_src(gateway.mac), set_eth_dst(pod.mac), goto(L3_DEC_TTL)],
        )


FEATURE = AgentFeature(
    name="PodConnectivity",
    tables=tables,
    units=(
        Unit(Transport, tunnel_entry),
        Unit(RealizedPipeline, default_flows),
        Unit(ThisNode, node_flows),
        Unit(PodInterface, pod_flows),
    ),
)
FEATURES = (FEATURE,)
