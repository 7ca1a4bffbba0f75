"""Connections to a port of the Node that NodePortLocal leads to a Pod: the switch gets them with the Pod's address and port.

parity: pkg/agent/flowexporter/connections/from_external_correlator.go, pkg/agent/nodeportlocal/portcache/port_table.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.apis.flow import FlowType
from antrea.facts.service import Service
from antrea.features.node_port_local.request import leading
from antrea.features.node_port_local.row import HeldPort, PortLocalPod, request_key

if TYPE_CHECKING:
    from antrea.apis.flow import FlowRecord
    from antrea.engine import Facts

PROTOCOLS: Final = {6: "TCP", 17: "UDP", 132: "SCTP"}
"""Protocols with ports, by number."""


def held_port(facts: Facts, record: FlowRecord) -> int:
    """Return the Node's port that leads to the destination of a connection from outside; 0 if none does."""
    if record.flow_type != FlowType.FROM_EXTERNAL:
        return 0
    protocol = PROTOCOLS.get(record.protocol_identifier, "").lower()
    port = record.destination_transport_port
    held = facts.get(HeldPort, request_key(_pod(record), port, protocol, ipv6=record.is_ipv6))
    return held.node_port if held else 0


def add_held_port(facts: Facts, record: FlowRecord, ip: str, port: int) -> None:
    """Add that its client sent it to this address and port of the Node, and the Services of that port."""
    pod, protocol = facts.get(PortLocalPod, _pod(record)), PROTOCOLS[record.protocol_identifier]
    names = leading(facts, pod, record.destination_transport_port, protocol) if pod else []
    service = facts.get(Service, names[0]) if len(names) == 1 else None
    record.destination_service_port_name, record.destination_service_port = "|".join(names), port
    record.destination_service_ip = record.destination_cluster_ip = ip
    record.destination_service_uid = service.uid if service else ""


def _pod(record: FlowRecord) -> str:
    return f"{record.destination_pod_namespace}/{record.destination_pod_name}"
