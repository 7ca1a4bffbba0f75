"""DNS answers that the Node receives: the kernel holds them until the addresses in them are in the sets of rules on names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.config.shape import host_and_port
from antrea.errors import Refused
from antrea.features.network_policy.agent_part.dns_trust import TrustedServers
from antrea.features.network_policy.agent_part.name_scope import NameScope, node_resolvers
from antrea.features.node_policy.fqdn import (
    MAX_HELD,
    QUEUE,
    AnswerQueue,
    NodeFqdnAddress,
    NodeFqdnPattern,
    UntrustedNodeAnswer,
)
from antrea.features.node_policy.rule import NodeRule
from antrea.openflow.packet import IPV4, IPV6
from antrea.outside.log import klog
from antrea.outside.nftables.libnftables import connect
from antrea.outside.nftables.packet_queue import PacketQueue, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from antrea.config.agent import AgentConfig
    from antrea.engine import Facts
    from antrea.features.network_policy.agent_part.fqdn import FqdnController

log = klog.logger(__name__)

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


def as_frame(octets: bytes) -> bytes:
    """Return an IP packet as a frame."""
    kind = IPV6 if octets[:1] and octets[0] >> 4 == 6 else IPV4
    return NO_ADDRESSES + kind.to_bytes(2) + octets


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

    def _handle(self, octets: bytes, verdict: Callable[[bool], None]) -> None:
        """Handle one answer; if only audited rules need it, it is not held, so that auditing delays and loses nothing."""
        if any(not rule.audit for rule in self._facts.by(NodeRule, "dns", "dns")):
            self._names.handle(as_frame(octets), verdict)
        else:
            self._names.note(as_frame(octets))
            verdict(True)
