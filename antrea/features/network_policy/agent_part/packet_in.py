"""What the agent does with packets that rules send it: it logs them, and answers those that are rejected.

parity: pkg/agent/controller/networkpolicy/packetin.go HandlePacketIn
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from antrea.errors import Invalid
from antrea.features.network_policy.agent.audit import lines
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
    """What outside.audit_log.AuditLog does for us."""

    def line(self, text: str, *, repeats: bool) -> None:
        """Write a line, or count it with equal ones."""


class PolicyPackets:
    """Handles packet-ins of category NETWORK_POLICY; answers go to `send`, lines to `audit`."""

    def __init__(self, facts: Facts, send: Callable[[PacketOut], None], audit: Audit) -> None:
        self._facts = facts
        self._send = send
        self._audit = audit
        self.denied: Callable[[PacketIn, Packet], None] = lambda _found, _read: None
        """What takes packets of connections that are denied, where these are exported."""

    def handle(self, found: PacketIn) -> None:
        """Handle one packet-in; one that cannot be parsed is logged and dropped."""
        operations = found.userdata[1] if len(found.userdata) > 1 else 0
        try:
            read = packet(found.frame)
        except Invalid as error:
            log.v(2).info("Failed to parse a packet-in of a policy rule", err=str(error))
            return
        if operations & LOG:
            for line in lines(self._facts, found, read):
                self._audit.line(line.text, repeats=line.repeats)
        if operations & STORE:
            self.denied(found, read)
        if operations & REJECT and (answer := rejection(self._facts, found, read)):
            self._send(answer)
