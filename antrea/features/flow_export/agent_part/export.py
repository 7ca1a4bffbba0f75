"""Export of the connections to one destination, and its session."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.features.flow_export.agent_part.destination import Destination
from antrea.features.flow_export.connection import ConnectionStore, DeniedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from antrea.apis.flow import FlowRecord
    from antrea.features.flow_export.l7_event import Ends
    from antrea.features.flow_export.l7_requests import Requests
    from antrea.features.flow_export.settings import ExportSettings
    from antrea.features.framework.agent_part import AgentContext
    from antrea.openflow.tracked_connection import TrackedConnection

LOOK_SECONDS: Final = 1.0
GRACE_SECONDS: Final = 30.0
"""Seconds for which a destination has to fail, or to work, until that is reported: short changes are not reported."""


class Polled(NamedTuple):
    """Result of a poll of connections, at a monotonic time and in seconds of the epoch."""

    changed: Collection[TrackedConnection]
    """Connections that are new, or have changed since the last poll."""
    gone: Collection[TrackedConnection]
    everything: Callable[[], Iterable[TrackedConnection]]
    now: float
    wall: float


class Export:
    """Export to one destination."""

    def __init__(self, agent: AgentContext, settings: ExportSettings) -> None:
        self._wanted = settings.protocols
        requests = "L7FlowExporter" in agent.gates
        self.tracked = ConnectionStore(settings.active, settings.idle, settings.stale, requests=requests)
        self.denied = DeniedStore(settings.active, settings.idle)
        self.destination = Destination(
            agent.facts, agent.kube, settings.collector, settings.trust, agent.node, self._due,
            requests=requests,
        )  # fmt: skip

    def takes(self, protocol: int) -> bool:
        """Whether connections of this protocol are exported."""
        return not self._wanted or protocol in self._wanted

    def update(
        self,
        polled: Polled,
        record: Callable[[TrackedConnection], FlowRecord | None],
        requests: Mapping[Ends, Requests],
    ) -> Iterator[None]:
        """Process changes, for a new export all connections, in slices, and their requests."""

        def own_record(connection: TrackedConnection) -> FlowRecord | None:
            return record(connection) if self.takes(connection.key[0]) else None

        changed = polled.changed if self.tracked.begun else polled.everything()
        yield from self.tracked.update(changed, polled.gone, polled.now, polled.wall, own_record)
        self.tracked.join(requests, polled.now)

    def _due(self, now: float, most: int) -> list[FlowRecord]:
        return self.denied.due(now, most) or self.tracked.due(now, most)


class ObjectExport:
    """Export of a FlowExporterDestination; `report` gets why it fails, and an empty text when it works again."""

    def __init__(self, export: Export, report: Callable[[str], None]) -> None:
        self.export, self._report = export, report
        self._task = asyncio.create_task(self._run(), name="FlowExporterDestination")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.export.destination.run(), name="flow collector")
            tasks.create_task(self._follow(), name="flow collector state")

    async def _follow(self) -> None:
        failing, since = False, time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            trouble, now = self.export.destination.trouble, time.monotonic()
            if bool(trouble) == failing:
                since = now
            elif now - since >= GRACE_SECONDS:
                failing, since = bool(trouble), now
                self._report(trouble)

    async def end(self) -> None:
        """End its session; waiting records are dropped."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
