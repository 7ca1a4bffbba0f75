"""Effects of policies on Nodes: packets that their rules log become lines of the audit log, DNS answers are held for rules on
names.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.errors import Invalid, Refused
from antrea.features.framework.agent_part import Part
from antrea.features.network_policy.agent_part.fqdn import FqdnController
from antrea.features.network_policy.agent_part.part import PolicyPart
from antrea.features.node_policy.agent_part.answer import NodeAnswers, as_frame, node_scope
from antrea.features.node_policy.audit import line
from antrea.features.node_policy.chain import LOG_BYTES, LOG_GROUP
from antrea.openflow.packet import packet
from antrea.outside.log import klog
from antrea.outside.nftables.packet_log import PacketLog

if TYPE_CHECKING:
    from antrea.features.framework.agent_part import AgentContext

log = klog.logger(__name__)

NAMES = "node-fqdn-cache"
"""File of the addresses of names that rules on the Node match."""


class NodePolicyPart(Part):
    """Reader of the log group and the queue of nftables."""

    def __init__(self, agent: AgentContext) -> None:
        policies = agent.part(PolicyPart)
        self._facts = agent.facts
        self._audit = policies.audit
        self._packets = PacketLog(LOG_GROUP, LOG_BYTES, self._handle)
        scope = node_scope(agent.facts, agent.config, agent.run_dir / NAMES)
        self._names = FqdnController(
            agent.facts, scope, policies.settled, min_ttl=agent.config.fqdn_cache_min_ttl
        )
        policies.names.append(self._names)
        self._answers = NodeAnswers(agent.facts, self._names)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._names.run(), name="FQDN cache of the Node")
            tasks.create_task(self._answers.run(), name="DNS answers to the Node")
            tasks.create_task(self._log(), name="audit log of Node rules")

    async def _log(self) -> None:
        """Log packets; ends where the kernel or another process does not allow it."""
        try:
            await self._packets.run()
        except (Refused, OSError) as error:
            log.error("What policies on this Node log is not written", err=str(error))

    def _handle(self, prefix: str, octets: bytes) -> None:
        try:
            record = line(self._facts, prefix, packet(as_frame(octets)))
        except Invalid as error:
            log.v(2).info("A packet that a rule on this Node logs cannot be read", err=str(error))
            return
        if record is not None:
            self._audit.line(record.text, repeats=record.repeats)


PART = NodePolicyPart
