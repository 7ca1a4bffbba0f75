"""Sink of PodSysctl: settings of the kernel in the network namespaces of Pods.

Which ones are set is in a file, so that a later start restores those that are not wanted any more.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.decoding import decode_json
from antrea.errors import Invalid, Refused, Unavailable
from antrea.host.pod_sysctl import PodSysctl
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.disk.state_file import Damaged, read_bytes, sealed, set_aside, unsealed
from antrea.outside.log import klog
from antrea.outside.netlink.netns import NetnsWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

log = klog.logger(__name__)

KIND: Final = b"antrea settings of Pods 1\n"


class PodSysctlSink:
    """Settings of a Pod whose network namespace is gone count as applied. `close` it when done."""

    def __init__(self, path: Path) -> None:
        """`path` is a file that outlives the agent."""
        self._path = path
        self._worker = NetnsWorker()
        self._wanted: dict[tuple[str, str], PodSysctl] = {}
        self._previous: dict[tuple[str, str], PodSysctl] = {}
        """Entries of an earlier start that no sweep has reached."""

    async def apply(self, put: Sequence[PodSysctl], drop: Sequence[PodSysctl]) -> None:
        """Raises Refused naming all settings that the kernel refused, with its words about the last."""
        self._wanted |= {entry.key: entry for entry in put}
        for entry in drop:
            self._wanted.pop(entry.key, None)
        await self._save()
        refused, why = [], ""
        for entry in put:
            try:
                await self._inside(entry, entry.value, over="")
            except OSError as error:
                refused.append(entry)
                why = f"{entry.path} in {entry.netns} cannot be {entry.value}: {error.strerror}"
        await self._restore(drop)
        if refused:
            raise Refused(refused, why)

    async def resync(self, entries: Sequence[PodSysctl]) -> None:
        """Raises as `apply`."""
        self._previous = {entry.key: entry for entry in await asyncio.to_thread(self._read)}
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Restore what an earlier start has set and nothing wants any more."""
        left = [entry for entry in self._previous.values() if entry.category == category]
        self._previous = {key: entry for key, entry in self._previous.items() if entry not in left}
        await self._restore([entry for entry in left if entry.key not in self._wanted])
        await self._save()

    def close(self) -> None:
        """End the thread that enters network namespaces."""
        self._worker.close()

    async def _restore(self, entries: Sequence[PodSysctl]) -> None:
        for entry in entries:
            try:
                await self._inside(entry, entry.default, over=entry.value)
            except OSError as error:
                log.warning("Failed to restore a setting of a Pod", netns=entry.netns, err=str(error))

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

    def _read(self) -> list[PodSysctl]:
        try:
            return decode_json(unsealed(KIND, read_bytes(self._path)), list[PodSysctl], str(self._path))
        except FileNotFoundError:
            return []
        except (OSError, Damaged, Invalid) as error:
            log.warning("Failed to read the settings of Pods", path=self._path, err=str(error))
            set_aside(self._path)
            return []

    async def _save(self) -> None:
        """Write all that is set. Without the file a later start restores nothing."""
        entries = list((self._previous | self._wanted).values())
        try:
            await asyncio.to_thread(exchange, self._path, sealed(KIND, [msgspec.json.encode(entries)]))
        except OSError as error:
            log.warning("Failed to write the settings of Pods", path=self._path, err=str(error))
