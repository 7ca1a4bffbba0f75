"""Writer of a Node's result into the status of a Traceflow, concurrently with other Nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antrea.apis.core import ObjectMeta
from antrea.errors import Refused, Unavailable
from antrea.features.traceflow.trace import FAILED, RUNNING, TRACEFLOWS
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antrea.apis.crd.traceflow import CapturedPacket, NodeResult
    from antrea.features.traceflow.trace import RunningTrace
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)
TRIES: Final = 10
FIRST_PAUSE: Final = 0.05
"""Seconds of the first pause; doubled after each try."""


class StoredTrace(msgspec.Struct, frozen=True):
    """Fields that are read of a Traceflow before its status is written."""

    metadata: ObjectMeta = ObjectMeta()
    status: dict[str, Any] = {}


class ResultWriter:
    """Writer for the Traceflows of one Node."""

    def __init__(
        self, kube: Kube, node: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._kube, self._node, self._sleep = kube, node, sleep

    async def add(self, trace: RunningTrace, result: NodeResult, packet: CapturedPacket | None) -> None:
        """Add a result; a Traceflow that is over or another one keeps what it has. A failure is logged."""

        def changed(status: dict[str, Any]) -> dict[str, Any]:
            added = {"results": [*status.get("results", ()), msgspec.to_builtins(result)]}
            return added | ({"capturedPacket": msgspec.to_builtins(packet)} if packet else {})

        await self._write(trace, changed)

    async def fail(self, trace: RunningTrace, why: str) -> None:
        """End the Traceflow: this Node cannot do its part. A failure to write that is logged."""
        reason = f"Node: {self._node}, error: {why}"
        log.info("Traceflow failed", traceflow=trace.name, err=why)
        await self._write(trace, lambda _: {"phase": FAILED, "reason": reason})

    async def _write(self, trace: RunningTrace, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        pause, path, why = FIRST_PAUSE, f"{TRACEFLOWS}/{trace.name}", "it changes all the time"
        for _ in range(TRIES):
            try:
                held = await self._kube.get(path, StoredTrace)
                if held is None or held.metadata.uid != trace.uid or held.status.get("phase") != RUNNING:
                    return
                version = {"uid": trace.uid, "resourceVersion": held.metadata.resource_version}
                body = {"metadata": version, "status": changed(held.status)}
                await self._kube.patch(f"{path}/status", body)
            except (Refused, Unavailable) as error:
                why = str(error)
                await self._sleep(pause)
                pause *= 2
            else:
                return
        log.error("Failed to update the status of a Traceflow", traceflow=trace.name, err=why)
