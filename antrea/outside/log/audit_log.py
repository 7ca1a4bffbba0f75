"""The audit log of policies: a line for each packet, equal ones of a second in one, files that are put aside when full.

parity: pkg/agent/controller/networkpolicy/audit_logging.go
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from antrea.outside.log import klog
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.log.rotated_file import RotatedFile

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.config.agent_sections import AuditLogging

log = klog.logger(__name__)

LOST = Metric(
    "antrea_agent_audit_log_lost_count",
    "counter",
    "ALPHA",
    "Number of lines of the audit log of NetworkPolicies that could not be written.",
)
BUFFER_SECONDS = 1.0
"""How long a line waits for equal ones."""


class _Repeated(msgspec.Struct):
    since: float
    timer: asyncio.TimerHandle
    count: int = 1


class AuditLog:
    """Writer of the audit log at `path`. On a full or missing disk lines are lost and counted, and callers are not stopped."""

    def __init__(self, path: Path, limits: AuditLogging) -> None:
        self._file = RotatedFile(path, limits)
        self._repeated: dict[str, _Repeated] = {}
        self._full = asyncio.Event()
        self._full.set()
        self._lost = 0
        self._works = True

    def line(self, text: str, *, repeats: bool) -> None:
        """Write `text` now, or, if it `repeats`, after a second, with the number of those equal to it."""
        if not repeats:
            self._write(text)
        elif same := self._repeated.get(text):
            same.count += 1
        else:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(BUFFER_SECONDS, self._flush, text)
            self._repeated[text] = _Repeated(loop.time(), timer)

    async def run(self) -> None:
        """Tidies what was put aside; when cancelled, writes what waits."""
        try:
            while True:
                await self._full.wait()
                self._full.clear()
                try:
                    await asyncio.to_thread(self._file.tidy)
                except OSError as error:
                    log.v(2).info("Failed to remove old audit log files", err=str(error))
        finally:
            for text in list(self._repeated):
                self._flush(text)
            self._file.close()

    def text(self) -> str:
        """Metrics, in Prometheus' format."""
        return LOST.text([Sample(self._lost)])

    def _flush(self, text: str) -> None:
        repeated = self._repeated.pop(text)
        repeated.timer.cancel()
        if repeated.count > 1:
            seconds = asyncio.get_running_loop().time() - repeated.since
            text = f"{text} [{repeated.count} packets in {seconds:.6f}s]"
        self._write(text)

    def _write(self, text: str) -> None:
        try:
            full = self._file.write(f"{datetime.now():%Y/%m/%d %H:%M:%S.%f} {text}\n".encode())
        except OSError as error:
            self._lost += 1
            self._file.close()
            if self._works:
                log.error("Failed to write the audit log of NetworkPolicies", error=error)
            self._works = False
            return
        self._works = True
        if full:
            self._full.set()
