"""Connections to a port of the Node that NodePortLocal leads to a Pod: the switch gets them with the Pod's address and port.

parity: pkg/agent/flowexporter/connections/from_external_correlator.go, pkg/agent/nodeportlocal/portcache/port_table.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from antrea.apis.flow import FlowType
from antrea.facts.service import Service
from antrea.features.node_port_local.request import leading
from antrea.features.node_port_local.row import HeldPort, PortLocalPod, request_key

if TYPE_CHECKING:
    from antrea.apis.flow import FlowRecord
    from antrea.engine import Facts

_PROTOCOLS: Final = {6: "TCP", 17: "UDP", 132: "SCTP"}


def held_port(facts: Facts, record: FlowRecord) -> int:
    """The Node's port that leads to where a connection from outside goes; 0: none does."""
    if record.flow_type != FlowType.FROM_EXTERNAL or record.destination_service_port:
        return 0
    protocol = _PROTOCOLS.get(record.protocol_identifier, "").lower()
    port = record.destination_transport_port
    held = facts.get(HeldPort, request_key(_pod(record), port, protocol, ipv6=record.is_ipv6))
    return held.node_port if held else 0


def with_port(facts: Facts, record: FlowRecord, ip: str, port: int) -> FlowRecord:
    """The record of a connection that its client sent to this address and port of the Node."""
    pod, protocol = facts.get(PortLocalPod, _pod(record)), _PROTOCOLS[record.protocol_identifier]
    names = leading(facts, pod, record.destination_transport_port, protocol) if pod else []
    service = facts.get(Service, names[0]) if len(names) == 1 else None
    return msgspec.structs.replace(
        record,
        destination_service_port_name="|".join(names),
        destination_service_port=port,
        destination_service_ip=ip,
        destination_cluster_ip=ip,
        destination_service_uid=service.uid if service else "",
    )


def _pod(record: FlowRecord) -> str:
    return f"{record.destination_pod_namespace}/{record.destination_pod_name}"
