"""Answers to packets to Services without an Endpoint and to ports without a Service, which the switch sends to the agent.

parity: pkg/agent/proxy/proxier.go HandlePacketIn
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.errors import Invalid
from antrea.features.pod_connectivity.rejection import rejection
from antrea.openflow.packet import packet
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.engine import Facts
    from antrea.openflow.packet_in import PacketIn
    from antrea.openflow.packet_out import PacketOut

log = klog.logger(__name__)


class ServicePackets:
    """Handler of packet-ins of category SVC_REJECT; answers go to `send`: a TCP RST, else ICMP port unreachable."""

    def __init__(self, facts: Facts, send: Callable[[PacketOut], None]) -> None:
        self._facts = facts
        self._send = send

    def handle(self, packet_in: PacketIn) -> None:
        """Answer one packet; one that cannot be read has no answer."""
        try:
            read = packet(packet_in.frame)
        except Invalid as error:
            log.v(2).info("Could not read a packet that no Endpoint takes", err=str(error))
            return
        if answer := rejection(self._facts, packet_in, read):
            self._send(answer)
