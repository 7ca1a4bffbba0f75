"""Effects of policies on Nodes: packets that their rules log become lines of the audit log, DNS answers are held for rules on
names.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.config.shape import host_and_port
from antrea.errors import Invalid, Refused
from antrea.features.framework.agent_part import Part
from antrea.features.network_policy.agent_part.dns_trust import TrustedServers
from antrea.features.network_policy.agent_part.fqdn import FqdnController
from antrea.features.network_policy.agent_part.name_scope import NameScope, node_resolvers
from antrea.features.network_policy.agent_part.part import PolicyPart
from antrea.features.node_policy.audit import line
from antrea.features.node_policy.chain import LOG_BYTES, LOG_GROUP
from antrea.features.node_policy.fqdn import (
    MAX_HELD,
    QUEUE,
    AnswerQueue,
    NodeFqdnAddress,
    NodeFqdnPattern,
    UntrustedNodeAnswer,
)
from antrea.features.node_policy.rule import NodeRule
from antrea.openflow.packet import IPV4, IPV6, packet
from antrea.outside.log import klog
from antrea.outside.nftables.libnftables import connect
from antrea.outside.nftables.packet_log import PacketLog
from antrea.outside.nftables.packet_queue import PacketQueue, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from antrea.config.agent import AgentConfig
    from antrea.engine import Facts
    from antrea.features.framework.agent_part import AgentContext

log = klog.logger(__name__)

NAMES = "node-fqdn-cache"
"""File of the addresses of names that rules on the Node match."""
NO_ADDRESSES = bytes(12)
"""Value in place of the MAC addresses of a frame."""
RETRY_SECONDS = 5.0
"""Seconds until a queue that another process has, such as an agent that is ending, is requested again."""


def node_scope(facts: Facts, config: AgentConfig, keep: Path) -> NameScope:
    """Make the scope of names in policies on the Node; the agent queries the servers that the Node uses."""

    def servers() -> list[tuple[str, int]]:
        if config.dns_server_override:
            return [host_and_port(config.dns_server_override, 53)]
        return node_resolvers()

    return NameScope(
        NodeFqdnPattern,
        NodeFqdnAddress,
        keep,
        servers,
        TrustedServers(facts, config, node_resolvers).trusts,
        lambda pattern, answer: UntrustedNodeAnswer(pattern, answer.server),
        "node",
    )


def as_frame(data: bytes) -> bytes:
    """Return an IP packet as a frame."""
    kind = IPV6 if data[:1] and data[0] >> 4 == 6 else IPV4
    return NO_ADDRESSES + kind.to_bytes(2) + data


class NodeAnswers:
    """Queue of answers; row `AnswerQueue` has whether there is one."""

    def __init__(self, facts: Facts, names: FqdnController, retry: float = RETRY_SECONDS) -> None:
        self._facts, self._names, self._retry = facts, names, retry
        self._queue = PacketQueue(QUEUE, MAX_HELD, self._handle)

    async def run(self) -> None:
        """Run until cancelled."""
        lacks = await asyncio.to_thread(lambda: unsupported(connect()))
        while True:
            try:
                await self._queue.run(lambda: self._facts.put(AnswerQueue(lacks)))
            except (Refused, OSError) as error:
                log.error("DNS answers to this Node are not read", err=str(error))
                self._facts.put(AnswerQueue(str(error)))
            await asyncio.sleep(self._retry)

    def _handle(self, data: bytes, verdict: Callable[[bool], None]) -> None:
        """Handle one answer; if only audited rules need it, it is not held, so that auditing delays and loses nothing."""
        if any(not rule.audit for rule in self._facts.by(NodeRule, "dns", "dns")):
            self._names.handle(as_frame(data), verdict)
        else:
            self._names.note(as_frame(data))
            verdict(True)


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

    def _handle(self, prefix: str, data: bytes) -> None:
        try:
            record = line(self._facts, prefix, packet(as_frame(data)))
        except Invalid as error:
            log.v(2).info("A packet that a rule on this Node logs cannot be read", err=str(error))
            return
        if record is not None:
            self._audit.line(record.text, repeats=record.repeats)


PART = NodePolicyPart
