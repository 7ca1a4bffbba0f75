"""Effects of policies in the controller: the default Tiers, and reports of agents that are no longer true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.framework.controller_part import ControllerPart
from antrea.features.network_policy.controller.realization import NodeReport, report_key
from antrea.features.network_policy.controller_part.default_tiers import create_default_tiers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.features.framework.controller_part import ControllerContext

GATE = "AntreaPolicy"


class PolicyPart(ControllerPart):
    """Part of Kubernetes' and Antrea's policies."""

    def __init__(self, controller: ControllerContext) -> None:
        self._controller = controller

    async def run_while_leading(self) -> None:
        if GATE in self._controller.gates:
            await create_default_tiers(self._controller.kube)

    def left_span(self, policy: str, nodes: Iterable[str]) -> None:
        """Drop the reports of these Nodes on the policy, which are no longer true."""
        for node in nodes:
            self._controller.facts.drop(NodeReport, report_key(policy, node))


PART = PolicyPart
