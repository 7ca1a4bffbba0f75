"""Effects of BGPPolicy: FRR is driven, the Secret of passwords is watched, and the state of the Node is shown."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from antrea.errors import Unavailable
from antrea.features.bgp_policy.agent_part.control import FrrControl
from antrea.features.bgp_policy.agent_part.metrics import bgp_metrics
from antrea.features.bgp_policy.agent_part.summary_report import SummaryReport
from antrea.features.bgp_policy.gate import GATE
from antrea.features.bgp_policy.password import SECRET, PasswordSecret, PeerPassword, password_rows
from antrea.features.bgp_policy.report import (
    bfd_peers_down,
    bgp_peers_down,
    duplicate_router_id,
    settings_without_effect,
    unusable_peers,
)
from antrea.features.bgp_policy.state import FrrState
from antrea.features.bgp_policy.view import NoPolicy, shown_peers, shown_policy, shown_routes
from antrea.features.egress.agent_part.part import EgressPart
from antrea.features.framework.admission import Watched
from antrea.features.framework.agent_part import NotFound, Part
from antrea.host.bgp import KINDS
from antrea.outside.kube.engine_container import EngineContainer
from antrea.outside.kube.environment import own_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from antrea.engine import Facts, Feed, Sink
    from antrea.features.framework.agent_part import AgentContext, Connected, Route
    from antrea.outside.http.handlers import Check

CONTAINER, CONDITION = "antrea-bgp-engine", "BGPEngineDown"
SETTLED = 1.0
"""Seconds that routers take for a change after FRR has it."""
FOLDER = "frr"
"""Folder below the directory of files that outlive the agent, which the container has as /run/frr."""


class BgpPart(Part):
    """Part of one Node."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent, self._facts = agent, agent.facts
        self._control = FrrControl(agent.run_dir / FOLDER)
        self._is_on = GATE in agent.gates
        self._report = SummaryReport(
            agent.facts, agent.node, self._control, lambda: agent.controlplane.controller
        )
        self._egress: EgressPart | None = None
        """Without it an agent does not know that it ends for good."""
        if self._is_on:
            with contextlib.suppress(LookupError):
                self._egress = agent.part(EgressPart)
                self._egress.waits_for(self._withdraws)
        self._container = EngineContainer(agent.kube, agent.record, CONTAINER, GATE, CONDITION)

    def watched(self) -> Iterable[Watched]:
        """Watch the one Secret in the agent's own Namespace."""
        if not self._is_on:
            return
        path = f"/api/v1/namespaces/{own_namespace()}/secrets"
        yield Watched(
            path, PasswordSecret, PeerPassword, password_rows, field_selector=f"metadata.name={SECRET}"
        )

    def sinks(self) -> Mapping[type, Sink]:
        return dict.fromkeys(KINDS, self._control) if self._is_on else {}

    def feeds(self, _connected: Connected) -> Mapping[str, Feed]:
        return {"sessions of FRR": self._control} if self._is_on else {}

    async def run(self) -> None:
        if not self._is_on:
            self._control.stop()
            return
        await self._container.check()
        await self._report.run()

    def _withdraws(self) -> bool:
        """Whether routers may not have received yet that this Node, which ends for good, serves less."""
        return self._control.is_needed() and time.monotonic() - self._control.changed < SETTLED

    async def farewell(self) -> None:
        """Keep FRR until routers have received withdrawals, if the Node will run without an agent."""
        if self._egress is not None:
            with self._control.outlived():
                await self._egress.has_handed_over.wait()

    def routes(self) -> Mapping[str, Route]:
        return {
            "/bgppolicy": lambda _: self._shown(shown_policy),
            "/bgppeers": lambda query: self._shown(partial(shown_peers, query=query)),
            "/bgproutes": lambda query: self._shown(partial(shown_routes, query=query)),
        }

    def _shown(self, show: Callable[[Facts], Any]) -> Any:
        """Return an answer of the agent's API. Raises Unavailable, NotFound, Invalid."""
        if not self._is_on:
            raise Unavailable("bgp is not enabled")
        try:
            return show(self._facts)
        except NoPolicy as error:
            raise NotFound(str(error)) from error

    def metrics(self) -> str:
        return bgp_metrics(self._facts) if self._is_on else ""

    def conditions(self) -> Mapping[str, Check]:
        if not self._is_on:
            return {}
        return {
            CONDITION: self._down,
            "BGPConfigurationRefused": self._refused,
            "BGPPeersUnusable": lambda: unusable_peers(self._facts),
            "BGPSettingsIgnored": lambda: settings_without_effect(self._facts),
            "BGPPeersDown": lambda: bgp_peers_down(self._facts),
            "BFDPeersDown": lambda: bfd_peers_down(self._facts),
            "BGPRouterIDDuplicate": lambda: duplicate_router_id(self._facts),
        }

    def bundle(self) -> Mapping[str, Any]:
        try:
            shown = {
                name: show(self._facts)
                for name, show in (("policy", shown_policy), ("peers", shown_peers), ("routes", shown_routes))
            }
        except NoPolicy:
            return {}
        return {"bgp": shown}

    def _down(self) -> str:
        state = self._facts.get(FrrState)
        if state is None or not self._control.is_needed() or not state.why_not:
            return ""
        return f"{state.why_not}: this Node has no session with routers; {self._container.missing or 'see its log'}"

    def _refused(self) -> str:
        state = self._facts.get(FrrState)
        lines = state.refused if state else ()
        return "; ".join(f"FRR refuses {command!r}: {why}" for command, why in lines)


PART = BgpPart
