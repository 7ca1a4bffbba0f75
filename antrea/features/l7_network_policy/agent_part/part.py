"""Effects of L7NetworkPolicy: the tenants of the engine, and its verdicts in the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from antrea.features.framework.agent_part import Part
from antrea.features.l7_network_policy.agent_part.engine import L7EngineControl
from antrea.features.l7_network_policy.agent_part.files import EngineFiles
from antrea.features.l7_network_policy.agent_part.verdict_log import VerdictLog
from antrea.features.network_policy.l7.tenant import GATE, L7Engine, LoadedTenant, Tenant
from antrea.openflow.fields import (
    L7_NP_EGRESS_VLAN_ID_CT_LABEL,
    L7_NP_REDIRECT_CT_MARK,
    L7_NP_RULE_VLAN_ID_CT_LABEL,
    Zone,
)
from antrea.outside.kube.engine_container import EngineContainer
from antrea.outside.vswitch.conntrack import Conntrack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Feed, Sink
    from antrea.features.framework.agent_part import AgentContext, Connected
    from antrea.outside.http.handlers import Check
    from antrea.outside.vswitch.conntrack import Tracked

CONTAINER, CONDITION = "antrea-l7-engine", "L7EngineDown"
FOLDER = "l7-engine"
"""Folder below the directory of files that outlive the agent; the engine's container has it at the same path."""
ZONES = (Zone.CT_ZONE, Zone.CT_ZONE_V6)
VLANS = (L7_NP_RULE_VLAN_ID_CT_LABEL, L7_NP_EGRESS_VLAN_ID_CT_LABEL)


async def forget_connections(conntrack: Conntrack, vlan: int) -> None:
    """Remove connections with this VLAN. Raises Unavailable."""
    for zone in ZONES:
        connections = [
            connection for connection in await conntrack.connections(zone.value) if _has(connection, vlan)
        ]
        if connections:
            await conntrack.forget(connections)


async def has_connections(conntrack: Conntrack, vlan: int) -> bool:
    """Whether any connection has this VLAN. Raises Unavailable."""
    for zone in ZONES:
        if any(_has(connection, vlan) for connection in await conntrack.connections(zone.value)):
            return True
    return False


def _has(connection: Tracked, vlan: int) -> bool:
    if not connection.mark & L7_NP_REDIRECT_CT_MARK.field.mask:
        return False
    return any((connection.label & field.mask) >> field.lo == vlan for field in VLANS)


class L7Part(Part):
    """Part of one Node."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._files = EngineFiles(agent.run_dir / FOLDER)
        conntrack = Conntrack(Path(agent.config.ovs_run_dir))
        self._control = L7EngineControl(
            agent.facts,
            self._files,
            lambda vlan: forget_connections(conntrack, vlan),
            lambda vlan: has_connections(conntrack, vlan),
        )
        self._container = EngineContainer(agent.kube, agent.record, CONTAINER, GATE, CONDITION)
        self._log = VerdictLog(
            agent.facts,
            self._control.rule_of,
            self._files.events,
            agent.config.audit_logging,
        )

    def sinks(self) -> Mapping[type, Sink]:
        return {Tenant: self._control}

    def feeds(self, _connected: Connected) -> Mapping[str, Feed]:
        return {"tenants of the L7 engine": self._control}

    async def run(self) -> None:
        self._agent.begin(self._container.check(), f"container {CONTAINER}")
        await self._log.run()

    def metrics(self) -> str:
        return self._log.text()

    def conditions(self) -> Mapping[str, Check]:
        return {CONDITION: self._down}

    def _down(self) -> str:
        engine = self._agent.facts.get(L7Engine, "self")
        if engine is None or not self._control.is_needed():
            return ""
        if not engine.why_not:
            return self._control.memory_trouble()
        repair = self._container.missing or "see its log"
        return f"{engine.why_not}: what rules with l7Protocols name is dropped; {repair}"

    def bundle(self) -> Mapping[str, Any]:
        return {
            "l7engine": {
                "engine": self._agent.facts.all(L7Engine),
                "tenants": self._agent.facts.all(LoadedTenant),
            }
        }


PART = L7Part
