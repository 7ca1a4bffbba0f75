"""Effects of pools: neighbours are asked for addresses that this Node is to use, the kernel for those that no connection uses.

And all agents are sent the networks in which neighbours do not answer this Node.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from antrea.facts.member import SilenceReport
from antrea.features.external_ip_pool.agent_part.duplicate_prober import DuplicateProber
from antrea.features.external_ip_pool.agent_part.idle_detector import IdleFeed
from antrea.features.external_ip_pool.duplicate import ProbeAddress
from antrea.features.external_ip_pool.silence import ReportSilence, found_silent
from antrea.features.framework.agent_part import Part
from antrea.features.membership.agent_part.part import MembershipPart
from antrea.outside.vswitch.conntrack import Conntrack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Act, Feed
    from antrea.features.framework.agent_part import AgentContext, Connected, Handler


class ExternalIPPoolPart(Part):
    """Part that probes addresses of Egresses and Services, and feeds which are idle."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent, self._facts, self._prober = agent, agent.facts, DuplicateProber(agent.node)
        proxy = agent.config.antrea_proxy
        switch = Conntrack(Path(agent.config.ovs_run_dir)) if proxy.enable and proxy.proxy_all else None
        self._idle = IdleFeed(agent.node, switch=switch)

    def acts(self) -> Mapping[type[Act], Handler]:
        return {
            ProbeAddress: lambda act: self._prober.probe(self._facts, act),
            ReportSilence: self._report_silence,
        }

    def feeds(self, _connected: Connected) -> Mapping[str, Feed]:
        return {"neighbours of pool addresses": self._prober, "idle pool addresses": self._idle}

    async def _report_silence(self, _: ReportSilence) -> None:
        """For this Node at once, whatever becomes of its annotation."""
        networks = found_silent(self._facts)
        self._facts.put(SilenceReport(self._agent.node, networks), urgent=True)
        if gossip := self._agent.part(MembershipPart).gossip:
            gossip.report_silence(networks)


PART = ExternalIPPoolPart
