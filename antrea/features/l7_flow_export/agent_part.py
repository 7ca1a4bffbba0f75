"""Receiver of requests of annotated Pods from the engine, which keeps them until flow records take them.

The engine reads one port, has no signatures, and writes requests to a socket.
Source: docs.suricata.io/en/suricata-7.0.10/configuration
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antrea.apis import core
from antrea.apis.annotation import L7_EXPORT
from antrea.errors import Invalid, Refused, Unavailable
from antrea.features.flow_export.agent_part.part import FlowExportPart
from antrea.features.flow_export.l7_event import parsed
from antrea.features.flow_export.l7_requests import RequestStore
from antrea.features.framework.agent_part import Part
from antrea.features.l7_flow_export.agent import GATE, TAP, RecordWrongDirection, RequestEngine
from antrea.outside.kube.engine_container import EngineContainer
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.request_engine.session import EVENTS, EngineSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from antrea.engine import Act, Sink
    from antrea.features.framework.agent_part import AgentContext, Handler
    from antrea.outside.http.handlers import Check

TLS_FIELDS = {"custom": ["sni", "version"], "session-resumption": "yes"}
HEADER = "%YAML 1.1\n---\n"
"""First lines that the engine requires; JSON is YAML."""


def engine_file(port: str, folder: str, events: str) -> str:
    """The configuration of an engine that reads `port`, keeps files in `folder` and sends events to the socket `events`."""
    values: Mapping[str, Any] = {
        "default-log-dir": folder,
        "stats": {"enabled": "no"},
        "logging": {"default-log-level": "notice", "outputs": [{"console": {"enabled": "yes"}}]},
        "outputs": [{"eve-log": _events(events)}],
        "af-packet": [_capture(port)],
        "host-mode": "sniffer-only",
        "unix-command": {"enabled": "no"},
        "rule-files": [],
        "app-layer": {"protocols": _protocols()},
        "stream": _stream(),
        "flow": {"memcap": "32mb", "hash-size": 8192, "prealloc": 512, "managers": 1, "recyclers": 1},
        "defrag": {
            "memcap": "4mb",
            "hash-size": 1024,
            "trackers": 1024,
            "max-frags": 2048,
            "prealloc": "yes",
        },
        "ippair": {"memcap": "1mb", "hash-size": 256, "prealloc": 16},
        "host": {"memcap": "1mb", "hash-size": 256, "prealloc": 16},
        "vlan": {"use-for-tracking": "yes"},
        "runmode": "workers",
        "max-pending-packets": 256,
        "detect": {"profile": "low"},
    }
    return HEADER + msgspec.json.format(msgspec.json.encode(values)).decode() + "\n"


def _events(path: str) -> dict[str, Any]:
    return {
        "enabled": "yes",
        "filetype": "unix_stream",
        "filename": path,
        "types": [
            {"http": {"extended": "yes"}},
            "http2",
            {"tls": TLS_FIELDS},
            {"dns": {"version": 2, "formats": ["detailed"]}},
        ],
    }


def _capture(port: str) -> dict[str, Any]:
    """Configure capture without verification of checksums, which may be left to a device. A frame may have 64 KiB until it is
    cut.
    """
    return {
        "interface": port, "threads": 1, "cluster-id": 90, "cluster-type": "cluster_flow", "defrag": "no", "use-mmap": "yes",
        "tpacket-v3": "yes", "ring-size": 2048, "block-size": 131072, "checksum-checks": "no",
    }  # fmt: skip


def _protocols() -> dict[str, Any]:
    """Configure HTTP and TLS, which are detected by their first bytes, at any port."""
    body = {"request-body-limit": "4kb", "response-body-limit": "4kb"}
    dns = {"enabled": "yes", "detection-ports": {"dp": "53"}}
    return {
        "http": {"enabled": "yes", "libhtp": {"default-config": {"personality": "IDS", **body}}},
        "http2": {"enabled": "yes"},
        "tls": {"enabled": "yes", "detection-ports": {"dp": "443"}},
        "dns": {"udp": dns, "tcp": dns},
    }


def _stream() -> dict[str, Any]:
    """Configure streams with `midstream`: existing connections are read from here on."""
    return {
        "memcap": "16mb", "prealloc-sessions": 256, "checksum-validation": "no", "midstream": "true", "async-oneside": "false",
        "reassembly": {"memcap": "32mb", "depth": "1mb", "segment-prealloc": 256},
    }  # fmt: skip


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
