"""Receiver of requests of annotated Pods from the engine, which keeps them until flow records take them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from antrea.apis import core
from antrea.apis.annotation import L7_EXPORT
from antrea.errors import Invalid, Refused, Unavailable
from antrea.features.flow_export.agent_part.part import FlowExportPart
from antrea.features.flow_export.l7_event import parsed
from antrea.features.flow_export.l7_requests import RequestStore
from antrea.features.framework.agent_part import Part
from antrea.features.l7_flow_export.agent import GATE, TAP, RecordWrongDirection, RequestEngine
from antrea.features.l7_flow_export.configuration import engine_file
from antrea.outside.kube.engine_container import EngineContainer
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.request_engine.session import EVENTS, EngineSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from antrea.engine import Act, Sink
    from antrea.features.framework.agent_part import AgentContext, Handler
    from antrea.outside.http.handlers import Check

FOLDER: Final = "l7-flow-export"
"""Folder below the agent's directory of its Node; the engine's container has it under the same path."""
CONTAINER: Final = "antrea-l7-flow-engine"
CONDITION: Final = "L7FlowEngineMissing"
RECEIVED = Metric(
    "antrea_agent_l7_request_count",
    "counter",
    "ALPHA",
    "Number of HTTP requests, TLS sessions and DNS queries of annotated Pods that were seen.",
)
LOST = Metric(
    "antrea_agent_l7_request_lost_count",
    "counter",
    "ALPHA",
    "Number of these that no record has: there were too many, or they were malformed or of no exported connection.",
)


class L7FlowExportPart(Part):
    """Sink of RequestEngine."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._requests = agent.part(FlowExportPart).requests = RequestStore()
        self._malformed = 0
        self._container = EngineContainer(agent.kube, agent.record, CONTAINER, GATE, CONDITION)
        folder = agent.run_dir / FOLDER
        self._engine = EngineSession(
            folder, engine_file(TAP, str(folder), str(folder / EVENTS)), self._add_line
        )

    async def run(self) -> None:
        await self._container.check()

    def sinks(self) -> Mapping[type, Sink]:
        return {RequestEngine: self}

    def acts(self) -> Mapping[type[Act], Handler]:
        return {RecordWrongDirection: self._record}

    def conditions(self) -> Mapping[str, Check]:
        return {CONDITION: self._missing}

    def metrics(self) -> str:
        lost = self._requests.lost + self._malformed + self._engine.lost
        rows = ((RECEIVED, self._requests.received), (LOST, lost))
        return "".join(metric.text([Sample(count)]) for metric, count in rows)

    async def apply(self, put: Sequence[RequestEngine], drop: Sequence[RequestEngine]) -> None:
        """Start the engine, or stop it. Raises Refused."""
        if drop:
            await self._engine.end()
        if put:
            try:
                await self._engine.begin()
            except Unavailable as error:
                raise Refused(put, str(error)) from error

    async def resync(self, entries: Sequence[RequestEngine]) -> None:
        """Start the engine, or stop it, as `apply`."""
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Do nothing: the engine ends with the agent."""

    async def close(self) -> None:
        """Stop the engine."""
        await self._engine.end()

    def _add_line(self, line: bytes) -> None:
        try:
            request = parsed(line)
        except Invalid:
            self._malformed += 1
            return
        if request:
            self._requests.add(request, time.monotonic())

    def _missing(self) -> str:
        if not (why := self._engine.trouble):
            return ""
        why = self._container.missing or why
        return f"requests of annotated Pods are not exported, as the L7 flow engine is missing: {why}"

    async def _record(self, act: RecordWrongDirection) -> None:
        about = core.ObjectReference(
            api_version="v1", kind="Pod", namespace=act.namespace, name=act.name, uid=act.uid
        )
        message = (
            f"annotation {L7_EXPORT}: {act.value!r} has no effect, no requests are exported: "
            "write ingress, egress or both"
        )
        self._agent.record("L7ExportInvalid", message, warning=True, about=about)


PART = L7FlowExportPart
