"""Sink of PodSysctl: settings of the kernel in the network namespaces of Pods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from antrea.errors import Refused, Unavailable
from antrea.outside.log import klog
from antrea.outside.netlink.netns import NetnsWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antrea.host.pod_sysctl import PodSysctl

log = klog.logger(__name__)


class PodSysctlSink:
    """Settings of a Pod whose network namespace is gone count as applied. `close` it when done."""

    def __init__(self) -> None:
        self._worker = NetnsWorker()

    async def apply(self, put: Sequence[PodSysctl], drop: Sequence[PodSysctl]) -> None:
        """Raises Refused naming all settings that the kernel refused, with its words about the last."""
        refused, why = [], ""
        for entry in put:
            try:
                await self._inside(entry, entry.value, over="")
            except OSError as error:
                refused.append(entry)
                why = f"{entry.path} in {entry.netns} cannot be {entry.value}: {error.strerror}"
        for entry in drop:
            try:
                await self._inside(entry, entry.default, over=entry.value)
            except OSError as error:
                log.warning("Failed to restore a setting of a Pod", netns=entry.netns, err=str(error))
        if refused:
            raise Refused(refused, why)

    async def resync(self, entries: Sequence[PodSysctl]) -> None:
        """Raises as `apply`."""
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing to sweep: what an earlier start set in Pods is not known."""

    def close(self) -> None:
        """End the thread that enters network namespaces."""
        self._worker.close()

    async def _inside(self, entry: PodSysctl, value: str, *, over: str) -> None:
        """Write the value there; with `over`, only over that value. Raises OSError."""

        def write() -> None:
            file = Path("/proc/sys", entry.path)
            standing = file.read_text("ascii").split()
            if standing != value.split() and (not over or standing == over.split()):
                file.write_text(value, "ascii")

        try:
            await self._worker.run(entry.netns, write)
        except Unavailable as error:
            log.v(2).info("Skipped a setting of a Pod that is gone", netns=entry.netns, err=str(error))
