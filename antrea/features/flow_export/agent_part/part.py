"""Part that exports flow records: connection tracking is read at every poll, denied packets come from the switch."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from antrea.apis.core import ObjectReference
from antrea.apis.flow import BiflowDirection
from antrea.errors import Invalid, Unavailable
from antrea.facts.node import ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.flow_export.agent import FlowExport
from antrea.features.flow_export.agent_part.export import Export, ObjectExport, Polled
from antrea.features.flow_export.denied import connection_key, denied_record
from antrea.features.flow_export.direction import TCP, Directions
from antrea.features.flow_export.host_original import HostOriginals
from antrea.features.flow_export.idle_metrics_part import CONNECTED, DENIED, TRACKED
from antrea.features.flow_export.l7_event import Ends
from antrea.features.flow_export.metadata import PodNetworks, tracked_record
from antrea.features.flow_export.settings import destination_settings, poll_seconds, settings
from antrea.features.flow_export.translated_source import TranslatedSources
from antrea.features.framework.agent_part import Part
from antrea.features.network_policy.agent_part.part import PolicyPart
from antrea.openflow.fields import Zone
from antrea.openflow.tracked_connection import TrackedDump
from antrea.outside.ipfix.exporter import record_time
from antrea.outside.large_blocks import map_large_blocks
from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.netlink.translated_connection import host_originals
from antrea.outside.nftables.pod_counters import PodCounters
from antrea.outside.vswitch.conntrack import Conntrack

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from antrea.apis.flow import FlowRecord
    from antrea.engine import Sink
    from antrea.facts.flow_destination import FlowDestination
    from antrea.features.flow_export.l7_requests import RequestStore
    from antrea.features.framework.agent_part import AgentContext
    from antrea.openflow.packet import Packet
    from antrea.openflow.packet_in import PacketIn
    from antrea.openflow.tracked_connection import TrackedConnection
    from antrea.outside.http.handlers import Check

log = klog.logger(__name__)

CONDITION: Final = "FlowCollectorUnreachable"
KIND: Final = "FlowExporterDestination"
MAX_OBJECTS: Final = 8
"""Maximum number of destinations beside that of the configuration: each is a pass over all connections at every poll."""
MAX_TEXT: Final = 1000
"""Maximum number of characters of the condition."""
ZONES: Final = {False: Zone.CT_ZONE, True: Zone.CT_ZONE_V6}
SOURCES: Final = {False: Zone.SNAT_CT_ZONE, True: Zone.SNAT_CT_ZONE_V6}
EXPORTED = Metric(
    "antrea_agent_flow_record_count",
    "counter",
    "ALPHA",
    "Number of flow records that were exported.",
)
LOST = Metric(
    "antrea_agent_denied_packet_lost_count",
    "counter",
    "ALPHA",
    "Number of denied packets that no record has, as there were too many denied connections at a time.",
)
LOST_RECORDS = Metric(
    "antrea_agent_flow_record_lost_count",
    "counter",
    "ALPHA",
    "Number of connections whose last record was not exported, as the collector was away for too long or too many ended meanwhile.",
)


def next_poll(at: float, period: float, now: float) -> float:
    """When the poll after that of `at` is due; one that has taken longer than a period is followed by a pause of one.

    Times of IPFIX are whole seconds: polls that come later and later make a rate of two seconds one of three.
    """
    due = at + period
    return due if due > now else now + period


class FlowExportPart(Part):
    """Sink of FlowExport. Connections are read while there is a destination: of the configuration, or an object."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent, self._facts = agent, agent.facts
        self._poll_seconds = poll_seconds(agent.config)
        self._conntrack = Conntrack(Path(agent.config.ovs_run_dir))
        self._dump, self._sources = TrackedDump(), TranslatedSources()
        self._originals = HostOriginals(agent.facts)
        self._directions = Directions(agent.facts)
        self._networks = PodNetworks(agent.facts)
        self._counters: PodCounters | None = None
        """Counters where connection tracking has none; made with the first export."""
        self._own = Export(agent, settings(agent.config)) if agent.config.flow_exporter.enable else None
        self._objects: dict[str, ObjectExport] = {}
        self._faults: dict[str, str] = {}
        """Reasons why nothing goes to some FlowExporterDestinations."""
        self._exported = self._connected = self._lost = self._lost_records = 0
        """Counts of exports that have ended."""
        self._trouble = self._uncounted = self._query_failure = self._unseen = ""
        agent.part(PolicyPart).packets.denied = self._deny
        self.requests: RequestStore | None = None
        """Requests that wait for their connections; set by the feature that gets them."""

    @property
    def _exports(self) -> list[Export]:
        configured = [self._own] if self._own else []
        return configured + [export.export for export in self._objects.values()]

    async def run(self) -> None:
        map_large_blocks()  # a list of all connections is one
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll(), name="connections to export")
            if self._own:
                tasks.create_task(self._own.destination.run(), name="flow collector")

    def sinks(self) -> Mapping[type, Sink]:
        return {FlowExport: self}

    async def apply(self, put: Sequence[FlowExport], drop: Sequence[FlowExport]) -> None:
        """Begin and end exports; a changed one restarts."""
        for entry in (*put, *drop):
            await self._end(entry.key)
        for entry in put:
            self._begin(entry.destination)

    async def resync(self, entries: Sequence[FlowExport]) -> None:
        """Begin and end exports, as `apply`."""
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Do nothing: exports end with the agent."""

    async def close(self) -> None:
        """End the exports of objects."""
        for name in list(self._objects):
            await self._end(name)
        if self._counters:
            try:
                await asyncio.to_thread(self._counters.close)
            except Unavailable as error:
                log.warning("Failed to remove the counters of Pods", err=str(error))

    def conditions(self) -> Mapping[str, Check]:
        return {CONDITION: self._unreachable}

    def _unreachable(self) -> str:
        configured = [self._own.destination.trouble] if self._own else []
        named = self._faults | {
            name: export.export.destination.trouble for name, export in self._objects.items()
        }
        objects = [f"{KIND} {name}: {why}" for name, why in sorted(named.items()) if why]
        return "; ".join(why for why in (*configured, *objects) if why)[:MAX_TEXT]

    def metrics(self) -> str:
        """Render the metrics, with 0 while nothing is exported, as upstream."""
        exports = self._exports
        rows: tuple[tuple[Metric, Any], ...] = (
            (TRACKED, max((len(export.tracked) for export in exports), default=0)),
            (DENIED, max((len(export.denied) for export in exports), default=0)),
            (CONNECTED, self._connected + sum(export.destination.connections for export in exports)),
            (EXPORTED, self._exported + sum(export.destination.exported for export in exports)),
            (LOST, self._lost + sum(export.denied.lost for export in exports)),
            (LOST_RECORDS, self._lost_records + sum(export.tracked.lost for export in exports)),
        )
        return "".join(metric.text([Sample(count)]) for metric, count in rows)

    def _begin(self, requested: FlowDestination) -> None:
        def report(why: str) -> None:
            self._report(requested, why)

        try:
            if len(self._objects) >= MAX_OBJECTS:
                raise Unavailable(f"there are {MAX_OBJECTS} other destinations already; delete some")
            export_settings = destination_settings(requested, self._poll_seconds)
        except (Invalid, Unavailable) as error:
            self._faults[requested.name] = str(error)
            report(str(error))
            return
        self._objects[requested.name] = ObjectExport(Export(self._agent, export_settings), report)

    async def _end(self, name: str) -> None:
        self._faults.pop(name, None)
        if ended_export := self._objects.pop(name, None):
            self._exported += ended_export.export.destination.exported
            self._connected += ended_export.export.destination.connections
            self._lost += ended_export.export.denied.lost
            self._lost_records += ended_export.export.tracked.lost
            await ended_export.end()

    def _report(self, requested: FlowDestination, why: str) -> None:
        about = ObjectReference(
            api_version="crd.antrea.io/v1alpha1", kind=KIND, name=requested.name, uid=requested.uid
        )
        reason = "CollectorUnreachable" if why else "CollectorReachable"
        text = f"Node {self._agent.node} exports no flow records: {why}" if why else ""
        text = text or f"Node {self._agent.node} exports flow records"
        self._agent.record(reason, text, warning=bool(why), about=about)

    async def _poll(self) -> None:
        at = time.monotonic()
        while True:
            try:
                if self._exports:
                    await self._poll_once()
                self._trouble = ""
            except Unavailable as error:
                if str(error) != self._trouble:
                    log.warning("Failed to read connections to export", err=str(error))
                self._trouble = str(error)
            at = next_poll(at, self._poll_seconds, time.monotonic())
            await asyncio.sleep(at - time.monotonic())

    async def _poll_once(self) -> None:
        """Read all connections once, and process changes in slices; connections of a kind share a record."""
        self._networks = PodNetworks(self._facts)
        polled = await self._tracked()
        now, wall = polled.now, polled.wall
        made: dict[Hashable, FlowRecord | None] = {}

        def record(connection: TrackedConnection) -> FlowRecord | None:
            if (kind := connection.kind) not in made:
                made[kind] = tracked_record(self._facts, self._networks, connection, wall)
            return made[kind]

        requests, joined = self.requests.texts() if self.requests else {}, set[Ends]()
        for export in self._exports:
            for _ in export.update(polled, record, requests):
                await asyncio.sleep(0)
            joined |= export.tracked.joined
        if self.requests:
            self.requests.taken(joined, now)

    async def _tracked(self) -> Polled:
        """Read tracked connections, with counters from elsewhere and the sources that other ends see."""
        node, counts = self._facts.get(ThisNode), self._agent.config.ovs_datapath_type == "netdev"
        families = sorted(node.families) if node else []
        local = await self._count() if counts else set()
        counted = record_time()
        dumps = [await self._conntrack.dump(int(ZONES[family])) for family in families]
        now, wall = time.monotonic(), counted if counts else record_time()
        changed, gone = await asyncio.to_thread(self._dump.read, dumps)
        everything = self._dump.everything
        if (counters := self._counters) is not None:
            changed = await asyncio.to_thread(counters.apply, changed, gone, local)

            def everything() -> Iterator[TrackedConnection]:
                return map(counters.counted, self._dump.everything())

        self._sources.forget(gone)
        begins = any(not export.tracked.begun for export in self._exports)
        await self._read_sources(families, everything() if begins else changed)
        self._originals.forget(gone)
        await self._ask_host(changed)

        def original(connection: TrackedConnection) -> TrackedConnection:
            return self._originals.with_original(self._sources.with_seen_source(connection))

        changed, gone = self._directions.directed_changes(
            [original(connection) for connection in changed], gone
        )
        directed = self._directions.directed
        return Polled(
            changed, gone, lambda: (directed(original(connection)) for connection in everything()), now, wall
        )

    async def _read_sources(self, families: Iterable[bool], connections: Iterable[TrackedConnection]) -> None:
        """Read the zones of sources if one of these has its source there; later than the others, so that it is there."""
        if not await asyncio.to_thread(self._sources.lack, connections):
            return
        try:
            zones = [int(SOURCES[family]) for family in families]
            dumps = [await self._conntrack.dump(zone, counters=False) for zone in zones]
            await asyncio.to_thread(self._sources.read, dumps)
            self._unseen = ""
        except Unavailable as error:
            if str(error) != self._unseen:
                log.warning(
                    "Failed to read sources of connections from outside to other Nodes", err=str(error)
                )
            self._unseen = str(error)

    async def _ask_host(self, changed: Iterable[TrackedConnection]) -> None:
        """Ask the kernel for the first packets of new connections that the host may have translated."""
        if not (lacking := await asyncio.to_thread(self._originals.lacking, changed)):
            return
        try:
            originals = await asyncio.to_thread(host_originals, [connection.key for connection in lacking])
            self._originals.store(lacking, originals)
            self._query_failure = ""
        except Unavailable as error:
            if str(error) != self._query_failure:
                log.warning("Failed to ask for clients of NodePorts and NodePortLocal", err=str(error))
            self._query_failure = str(error)

    async def _count(self) -> set[str]:
        """Read what is counted at the interfaces of Pods, and give the Pods' addresses.

        This comes before connections are read: what is counted is of a connection that is tracked by then.
        """
        pods = self._facts.all(PodInterface)
        self._counters = counters = self._counters or PodCounters(self._poll_seconds)
        try:
            await counters.follow(pod.name for pod in pods)
            await counters.read()
            why = counters.trouble
        except Unavailable as error:
            why = str(error)
        if why and why != self._uncounted:
            log.warning("Failed to count packets of Pods: records have fewer or none", err=why)
        self._uncounted = why
        return {ip for pod in pods for ip in pod.ips}

    def _deny(self, packet_in: PacketIn, read: Packet) -> None:
        """Count a denied packet."""
        now, wall = time.monotonic(), record_time()
        for export in self._exports:
            if export.takes(read.protocol):
                export.denied.add(
                    connection_key(read), read.length, now, wall, lambda: self._denied(packet_in, read, wall)
                )

    def _denied(self, packet_in: PacketIn, read: Packet, wall: float) -> FlowRecord | None:
        """The record of a denied packet, whose sender is the client if it opens a connection or is known to be one."""
        record = denied_record(self._facts, self._networks, packet_in, read, wall)
        is_opening = read.protocol != TCP or read.is_tcp_opening
        if record and not is_opening and not self._directions.is_known(connection_key(read)):
            record.biflow_direction = int(BiflowDirection.ARBITRARY)
        return record


PART = FlowExportPart
