"""Effects of NodeLatencyMonitor: probes of other Nodes, reports, Events, metrics."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.features.framework.agent_part import Part
from antrea.features.node_latency.agent_part.prober import LatencyProber
from antrea.outside.icmp.echo import EchoReply, EchoSocket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.features.framework.agent_part import AgentContext


class NodeLatencyPart(Part):
    """Part of one Node."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent, self._identifier = agent, secrets.randbelow(1 << 16)
        self._prober = LatencyProber(
            agent.facts,
            agent.node,
            sockets=self._socket,
            controller=lambda: agent.controlplane.controller,
            record=self._record,
        )

    async def run(self) -> None:
        await self._agent.ready.wait()
        await self._prober.run()

    def metrics(self) -> str:
        return self._prober.metrics()

    def bundle(self) -> Mapping[str, Any]:
        return {"nodelatency": msgspec.to_builtins(self._prober.stats)}

    async def close(self) -> None:
        self._prober.close()

    def _socket(self, ipv6: bool, received: Callable[[EchoReply], None]) -> EchoSocket:
        return EchoSocket(self._identifier, received, ipv6=ipv6)

    def _record(self, reason: str, message: str, warning: bool) -> None:
        self._agent.record(reason, message, warning=warning)


PART = NodeLatencyPart
