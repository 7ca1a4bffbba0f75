"""Effects of PacketCapture: captures of this Node, their files, and uploads.

parity: pkg/agent/packetcapture/packetcapture_controller.go
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antrea.apis.core import ObjectReference
from antrea.features.framework.agent_part import Part
from antrea.features.packet_capture.agent_part.plan import DroppedPacket
from antrea.features.packet_capture.agent_part.run import CaptureRun
from antrea.features.packet_capture.capture import (
    SUFFIX,
    CaptureFile,
    CaptureProgress,
    CaptureRequest,
    file_name,
)
from antrea.features.packet_capture.drop import drop_reason
from antrea.openflow.fields import PacketIn as Category
from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from antrea.engine import Sink
    from antrea.features.framework.agent_part import AgentContext
    from antrea.openflow.packet_in import PacketIn

MAX_CAPTURES = 16
"""Maximum number of captures that run at a time; others wait."""
FOLDER = Path("antrea/packetcapture/packets")
"""Folder below that of temporary files."""
RUNNING = Metric(
    "antrea_agent_packet_capture_running", "gauge", "ALPHA", "Number of PacketCaptures that capture now."
)


class CapturePart(Part):
    """Sink of CaptureFile."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self.folder = Path(tempfile.gettempdir()) / FOLDER
        self.room = asyncio.Semaphore(MAX_CAPTURES)
        self._runs: dict[str, tuple[CaptureRun, asyncio.Task[None]]] = {}
        """Runs by name."""
        self.running = 0

    def sinks(self) -> Mapping[type, Sink]:
        return {CaptureFile: self}

    def packet_ins(self) -> Mapping[Category, Callable[[PacketIn], None]]:
        return {Category.PACKET_CAPTURE: self._dropped}

    def _dropped(self, packet_in: PacketIn) -> None:
        """Pass a packet on to all captures: each takes what fits its filter."""
        reason = drop_reason(self._agent.facts, packet_in)
        packet = DroppedPacket(packet_in.frame, reason)
        for run, _ in self._runs.values():
            run.take_drop(packet)

    def metrics(self) -> str:
        return RUNNING.text([Sample(self.running)])

    def bundle(self) -> Mapping[str, Any]:
        return {"packetcaptures": self._agent.facts.all(CaptureProgress)}

    async def run(self) -> None:
        """Remove files of deleted captures that an earlier agent left."""
        facts = self._agent.facts
        with facts.watch(CaptureRequest) as changed:
            while not facts.feeds.has(CaptureRequest):
                changed.clear()
                await changed.wait()
        names = {file_name(row.name) for row in facts.all(CaptureRequest)}
        for path in self.folder.glob(f"*{SUFFIX}"):
            if path.name not in names:
                path.unlink(missing_ok=True)

    async def apply(self, put: Sequence[CaptureFile], drop: Sequence[CaptureFile]) -> None:
        """Begin and end captures, which run in tasks of their own."""
        for entry in put:
            uid = self._runs[entry.name][0].uid if entry.name in self._runs else ""
            if uid == entry.uid:
                continue  # what has begun goes on as it was
            if uid:
                await self._end(entry.name)
            if not entry.complete:
                run = CaptureRun(self, self._agent, entry)
                task = asyncio.create_task(run.run(), name=f"PacketCapture {entry.name}")
                self._runs[entry.name] = (run, task)
        for entry in drop:
            await self._end(entry.name)

    async def resync(self, entries: Sequence[CaptureFile]) -> None:
        """Begin and end captures, as `apply`."""
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Do nothing: see `run`."""

    async def close(self) -> None:
        """End running captures; files stay."""
        for _, task in self._runs.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self._runs.values()), return_exceptions=True)

    async def _end(self, name: str) -> None:
        if name in self._runs:
            _, task = self._runs.pop(name)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.file(name).unlink(missing_ok=True)
        self._agent.facts.drop(CaptureProgress, name)

    def file(self, name: str) -> Path:
        """Return the file of the capture of this name."""
        return self.folder / file_name(name)

    @property
    def pod(self) -> str:
        """Name of the agent's own Pod."""
        return os.environ.get("POD_NAME", "")

    def note(self, progress: CaptureProgress) -> None:
        """Record the progress of a capture."""
        self._agent.facts.put(progress)

    def warn(self, entry: CaptureFile, reason: str, message: str) -> None:
        """Write an Event of the PacketCapture."""
        about = ObjectReference(
            api_version="crd.antrea.io/v1alpha1", kind="PacketCapture", name=entry.name, uid=entry.uid
        )
        self._agent.record(reason, message, warning=True, about=about)


PART = CapturePart
