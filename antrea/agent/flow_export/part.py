"""Exports records of connections: what connection tracking has is read at every poll, denied packets come from the switch."""

from __future__ import annotations

import asyncio
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from antrea.agent.flow_export.destination import Destination
from antrea.agent.network_policy.part import PolicyPart
from antrea.agent.part import Part
from antrea.errors import Unavailable
from antrea.facts.node import ThisNode
from antrea.features.flow_export.connection import ConnectionStore, DeniedStore
from antrea.features.flow_export.denied import connection_key, denied_record
from antrea.features.flow_export.metadata import PodNetworks, tracked_record
from antrea.features.flow_export.settings import settings
from antrea.openflow.fields import Zone
from antrea.openflow.tracked_connection import tracked_connections
from antrea.outside.ipfix.exporter import record_time
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.vswitch.conntrack import Conntrack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.agent.part import AgentContext
    from antrea.apis.flow import FlowRecord
    from antrea.openflow.packet import Packet
    from antrea.openflow.packet_in import PacketIn
    from antrea.openflow.tracked_connection import TrackedConnection
    from antrea.outside.http.handlers import Check

log = klog.logger(__name__)

CONDITION: Final = "FlowCollectorUnreachable"
ZONES: Final = {False: Zone.CT_ZONE, True: Zone.CT_ZONE_V6}
TRACKED = Metric(
    "antrea_agent_conntrack_antrea_connection_count",
    "gauge",
    "ALPHA",
    "Number of connections in the Antrea ZoneID of the conntrack table.",
)
DENIED = Metric(
    "antrea_agent_denied_connection_count",
    "gauge",
    "ALPHA",
    "Number of denied connections detected by Flow Exporter deny connections tracking.",
)
CONNECTED = Metric(
    "antrea_agent_flow_collector_reconnection_count",
    "counter",
    "ALPHA",
    "Number of re-connections between Flow Exporter and flow collector.",
)
EXPORTED = Metric(
    "antrea_agent_flow_record_count",
    "counter",
    "ALPHA",
    "Number of records of connections that were exported.",
)
LOST = Metric(
    "antrea_agent_denied_packet_lost_count",
    "counter",
    "ALPHA",
    "Number of denied packets that no record has, as there were too many denied connections at a time.",
)


class FlowExportPart(Part):
    """Nothing of it runs unless flowExporter.enable is true."""

    def __init__(self, agent: AgentContext) -> None:
        self._facts, self._settings = agent.facts, settings(agent.config)
        self._enabled = agent.config.flow_exporter.enable
        found = self._settings
        self._tracked = ConnectionStore(found.active, found.idle, found.stale)
        self._denied = DeniedStore(found.active, found.idle)
        self._conntrack = Conntrack(Path(agent.config.ovs_run_dir))
        self._networks = PodNetworks(agent.facts)
        self._destination = Destination(agent.facts, agent.kube, found.collector, agent.node, self._due)
        self._trouble = ""
        if self._enabled:
            agent.part(PolicyPart).packets.denied = self._deny

    async def run(self) -> None:
        if not self._enabled:
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll(), name="connections to export")
            tasks.create_task(self._destination.run(), name="flow collector")

    def conditions(self) -> Mapping[str, Check]:
        return {CONDITION: lambda: self._destination.trouble} if self._enabled else {}

    def metrics(self) -> str:
        rows: tuple[tuple[Metric, Any], ...] = (
            (TRACKED, len(self._tracked)),
            (DENIED, len(self._denied)),
            (CONNECTED, self._destination.connections),
            (EXPORTED, self._destination.exported),
            (LOST, self._denied.lost),
        )
        return "".join(metric.text([Sample(count)]) for metric, count in rows) if self._enabled else ""

    async def _poll(self) -> None:
        while True:
            try:
                await self._look()
                self._trouble = ""
            except Unavailable as why:
                if str(why) != self._trouble:
                    log.warning("Failed to read connections to export", err=str(why))
                self._trouble = str(why)
            await asyncio.sleep(self._settings.poll)

    async def _look(self) -> None:
        """Read all connections once, and take them in by slices."""
        node = self._facts.get(ThisNode)
        self._networks = PodNetworks(self._facts)
        zones = [ZONES[family] for family in sorted(node.families)] if node else []
        dumps = [await self._conntrack.dump(int(zone)) for zone in zones]
        now, wall = time.monotonic(), record_time()
        entries = chain.from_iterable(map(tracked_connections, dumps))
        for _ in self._tracked.update(entries, now, wall, lambda found: self._record(found, wall)):
            await asyncio.sleep(0)

    def _record(self, found: TrackedConnection, now: float) -> FlowRecord | None:
        wanted = self._settings.protocols
        if wanted and found.key[0] not in wanted:
            return None
        return tracked_record(self._facts, self._networks, found, now)

    def _deny(self, found: PacketIn, read: Packet) -> None:
        """Count a denied packet."""
        wanted, now, wall = self._settings.protocols, time.monotonic(), record_time()
        if wanted and read.protocol not in wanted:
            return
        self._denied.add(
            connection_key(read), read.length, now, wall,
            lambda: denied_record(self._facts, self._networks, found, read, wall),
        )  # fmt: skip

    def _due(self, now: float, most: int) -> list[FlowRecord]:
        found = self._denied.due(now, most)
        return found or self._tracked.due(now, most)


PART = FlowExportPart
