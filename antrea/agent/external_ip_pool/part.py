"""Effects of pools: neighbours are asked whether another host has an address that this Node is to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.agent.external_ip_pool.duplicate_prober import DuplicateProber
from antrea.agent.part import Part
from antrea.features.external_ip_pool.duplicate import ProbeAddress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.agent.part import AgentContext, Connected, Handler
    from antrea.engine import Act, Feed


class ExternalIPPoolPart(Part):
    """Probes addresses of Egresses and Services."""

    def __init__(self, agent: AgentContext) -> None:
        self._facts, self._prober = agent.facts, DuplicateProber(agent.node)

    def acts(self) -> Mapping[type[Act], Handler]:
        return {ProbeAddress: lambda act: self._prober.probe(self._facts, act)}

    def feeds(self, connected: Connected) -> Mapping[str, Feed]:
        return {"neighbours of pool addresses": self._prober}


PART = ExternalIPPoolPart
