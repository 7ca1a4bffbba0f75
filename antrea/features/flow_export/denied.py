"""Record of a connection that a policy denies, made from one of its packets.

parity: pkg/agent/controller/networkpolicy/packetin.go storeDenyConnection
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from antrea.apis.flow import FlowRecord, RuleAction
from antrea.features.flow_export.metadata import add_allowed, add_isolation, add_rule, add_service, named
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.network_policy.agent.priority import OUT
from antrea.openflow.fields import (
    AP_CONJ_ID,
    AP_DENY,
    AP_DISPOSITION,
    DISPOSITION_REJ_REG_MARK,
    PACKET_IN_TABLE,
    SERVICE,
)
from antrea.openflow.packet_in import CT_IPV6_DST, CT_LABEL, CT_MARK, CT_NW_DST, CT_TP_DST

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.flow_export.metadata import PodNetworks
    from antrea.openflow.packet import Packet
    from antrea.openflow.packet_in import PacketIn


def connection_key(read: Packet) -> tuple[int, str, int, str, int]:
    """Return what the packets of one connection have in common."""
    source, destination = read.ports or (0, 0)
    return read.protocol, read.source, source, read.destination, destination


def denied_record(
    facts: Facts, networks: PodNetworks, packet_in: PacketIn, read: Packet, now: float
) -> FlowRecord | None:
    """Make the record; None if it is not exported: neither end is a Pod of this Node, or the rule is gone."""
    protocol, source, source_port, destination, port = connection_key(read)
    record = FlowRecord(
        source_ip=source, destination_ip=destination, source_transport_port=source_port,
        destination_transport_port=port, protocol_identifier=protocol, flow_start_seconds=int(now),
    )  # fmt: skip
    if not named(facts, networks, record):
        return None
    if _number(packet_in, CT_MARK) & SERVICE.mask:
        destination_ip = packet_in.fields.get(CT_IPV6_DST if read.ipv6 else CT_NW_DST, b"")
        if len(destination_ip) in (4, 16):
            add_service(facts, record, str(ip_address(destination_ip)), _number(packet_in, CT_TP_DST))
    add_allowed(facts, record, _number(packet_in, CT_LABEL))
    realized, number = facts.get(RealizedPipeline), packet_in.value(PACKET_IN_TABLE)
    table = realized.pipeline.name_of(number) if realized else ""
    if not table:
        return None
    egress = table in (OUT.antrea.name, OUT.rule.name, OUT.default.name)
    rejected = packet_in.value(AP_DISPOSITION) == DISPOSITION_REJ_REG_MARK.value
    if packet_in.value(AP_DENY):
        action = RuleAction.REJECT if rejected else RuleAction.DROP
        add_rule(facts, record, packet_in.value(AP_CONJ_ID), action, egress=egress)
    else:
        add_isolation(record, egress=egress)
    return record


def _number(packet_in: PacketIn, field: int) -> int:
    return int.from_bytes(packet_in.fields.get(field, b""))
