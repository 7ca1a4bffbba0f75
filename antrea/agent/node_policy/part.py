"""Effects of policies on Nodes: packets that their rules log are lines of the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.agent.network_policy.part import PolicyPart
from antrea.agent.part import Part
from antrea.errors import Invalid, Refused
from antrea.features.node_policy.audit import line
from antrea.features.node_policy.chain import LOG_GROUP, LOG_OCTETS
from antrea.openflow.packet import IPV4, IPV6, packet
from antrea.outside.log import klog
from antrea.outside.nftables.packet_log import PacketLog

if TYPE_CHECKING:
    from antrea.agent.part import AgentContext

log = klog.logger(__name__)

NO_ADDRESSES = bytes(12)
"""In place of those of a frame."""


class NodePolicyPart(Part):
    """Reads the log group of nftables."""

    def __init__(self, agent: AgentContext) -> None:
        self._facts = agent.facts
        self._audit = agent.part(PolicyPart).audit
        self._packets = PacketLog(LOG_GROUP, LOG_OCTETS, self._handle)

    async def run(self) -> None:
        """Until cancelled; without a log where the kernel or another process does not let us have it."""
        try:
            await self._packets.run()
        except (Refused, OSError) as no:
            log.error("What policies on this Node log is not written", err=str(no))

    def _handle(self, prefix: str, octets: bytes) -> None:
        kind = IPV6 if octets[:1] and octets[0] >> 4 == 6 else IPV4
        try:
            found = line(self._facts, prefix, packet(NO_ADDRESSES + kind.to_bytes(2) + octets))
        except Invalid as no:
            log.v(2).info("A packet that a rule on this Node logs cannot be read", err=str(no))
            return
        if found is not None:
            self._audit.line(found.text, repeats=found.repeats)


PART = NodePolicyPart
