"""Packets that rules send to the agent: it logs them, and answers those that are rejected.

parity: pkg/agent/controller/networkpolicy/packetin.go HandlePacketIn
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from antrea.errors import Invalid
from antrea.features.network_policy.agent.audit import audit_records
from antrea.features.network_policy.agent.packet_in import LOG, REJECT, STORE
from antrea.features.pod_connectivity.rejection import rejection
from antrea.openflow.packet import packet
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.engine import Facts
    from antrea.openflow.packet import Packet
    from antrea.openflow.packet_in import PacketIn
    from antrea.openflow.packet_out import PacketOut

log = klog.logger(__name__)


class Audit(Protocol):
    """The method of outside.log.audit_log.AuditLog that is needed here."""

    def line(self, text: str, *, repeats: bool) -> None:
        """Write a line, or count it with equal ones."""


class PolicyPackets:
    """Handler of packet-ins of category NETWORK_POLICY; answers go to `send`, lines to `audit`."""

    def __init__(self, facts: Facts, send: Callable[[PacketOut], None], audit: Audit) -> None:
        self._facts = facts
        self._send = send
        self._audit = audit
        self.denied: Callable[[PacketIn, Packet], None] = lambda _found, _read: None
        """Handler of packets of denied connections, where these are exported."""

    def handle(self, packet_in: PacketIn) -> None:
        """Handle one packet-in; one that cannot be parsed is logged and dropped."""
        operations = packet_in.userdata[1] if len(packet_in.userdata) > 1 else 0
        try:
            read = packet(packet_in.frame)
        except Invalid as error:
            log.v(2).info("Failed to parse a packet-in of a policy rule", err=str(error))
            return
        if operations & LOG:
            for line in audit_records(self._facts, packet_in, read):
                self._audit.line(line.text, repeats=line.repeats)
        if operations & STORE:
            self.denied(packet_in, read)
        if operations & REJECT and (answer := rejection(self._facts, packet_in, read)):
            self._send(answer)
