"""Effects of the routes to other Nodes: conditions and Events when packets do not arrive."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from antrea.features.framework.agent_part import Part
from antrea.features.node_route.agent_part.reachability import Reachability

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.features.framework.agent_part import AgentContext
    from antrea.outside.http.handlers import Check


class NodeRoutePart(Part):
    """Prober of the gateways of other Nodes, and of a Service."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._reach = Reachability(agent.facts, agent.config.cluster_port, self._record, os.environ)

    def conditions(self) -> Mapping[str, Check]:
        return self._reach.conditions

    async def run(self) -> None:
        await self._reach.run(self._agent.ready)

    def _record(self, reason: str, message: str, warning: bool) -> None:
        self._agent.record(reason, message, warning=warning)


PART = NodeRoutePart
