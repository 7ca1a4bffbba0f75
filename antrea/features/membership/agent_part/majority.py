"""Event of a Node whose agent has been without a majority for a while: no Node in that state holds addresses of pools."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antrea.facts.member import PoolSelector, Quorum

if TYPE_CHECKING:
    from antrea.features.framework.agent_part import AgentContext

REASON: Final = "MajorityLost"
LOOK_SECONDS: Final = 5.0
LOOKS: Final = 4
"""Number of consecutive checks: agents that start together find each other within seconds."""


async def report_majority(agent: AgentContext) -> None:
    """Record an Event whenever the majority is lost while there are pools; runs until cancelled."""
    looks = 0
    while True:
        quorum = agent.facts.get(Quorum)
        lost = quorum is not None and not quorum.has and bool(agent.facts.all(PoolSelector))
        looks = looks + 1 if lost else 0
        if quorum and looks == LOOKS:
            agent.record(
                REASON,
                f"the agent finds {quorum.alive} of {quorum.of} agents, itself included, which is not a majority: this Node holds no"
                f" Egress IP of a pool and answers for no external IP of a Service; UDP and TCP port {agent.config.cluster_port}"
                " have to be open between Nodes",
                warning=True,
            )
        await asyncio.sleep(LOOK_SECONDS)
