"""Effects of SupportBundleCollection: makes a bundle, sends it to the file server, and reports the result.

One at a time: bundles of several collections do not add up on the disk of a Node.
parity: pkg/agent/supportbundlecollection/support_bundle_controller.go
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from antrea.apis.core import ObjectReference
from antrea.errors import Invalid
from antrea.features.framework.agent_part import Part
from antrea.features.support_bundle_collection.task import BundleReport, BundleResult, BundleUpload
from antrea.outside.controlplane.bundle_report_sink import BundleReportSink
from antrea.outside.http.loopback_token import TOKEN_FILE
from antrea.outside.log import klog
from antrea.outside.support_bundle.server import first_line, make_bundle
from antrea.outside.upload.plan import Credentials, UploadOrder, expect_known_host
from antrea.outside.upload.uploader import UploadFailed, uploaded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from antrea.engine import Sink
    from antrea.features.framework.agent_part import AgentContext
    from antrea.features.support_bundle_collection.task import BundleTask

log = klog.logger(__name__)
FOLDER = Path("antrea/supportbundle")
"""Folder below that of temporary files."""
SUFFIX = ".tar.gz"
REPEAT_SECONDS = 60.0
"""Seconds between two equal reports: another replica of the controller may lead now, and has not received the first."""
REMEMBERED = 64
"""Maximum number of results that are remembered by the UID of their collection, for one that the controller publishes again."""


class _Run(NamedTuple):
    uid: str
    work: asyncio.Task[None]


class CollectionPart(Part):
    """Sink of BundleUpload."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._folder = Path(tempfile.gettempdir()) / FOLDER
        self._turn = asyncio.Semaphore(1)
        self._runs: dict[str, _Run] = {}
        """Runs by name."""
        self._results: dict[str, BundleResult] = {}
        """Results by UID, the oldest first."""
        self._reports = BundleReportSink(agent.controlplane)

    def sinks(self) -> Mapping[type, Sink]:
        return {BundleUpload: self, BundleReport: self._reports}

    async def run(self) -> None:
        """Repeat reports until cancelled."""
        with self._agent.controlplane.notify_connected(self._repeat):
            while True:
                await asyncio.sleep(REPEAT_SECONDS)
                if self._agent.facts.all(BundleResult):
                    self._repeat()

    def _repeat(self) -> None:
        self._agent.engine().resync(self._reports)

    async def apply(self, put: Sequence[BundleUpload], drop: Sequence[BundleUpload]) -> None:
        """Begin and end collections, which run in tasks of their own."""
        for entry in put:
            task = entry.task
            if task.name in self._runs and self._runs[task.name].uid == task.uid:
                continue  # it goes on as it was
            await self._end(task.name)
            work = asyncio.create_task(self._collect(task), name=f"SupportBundleCollection {task.name}")
            self._runs[task.name] = _Run(task.uid, work)
        for entry in drop:
            await self._end(entry.key)

    async def resync(self, entries: Sequence[BundleUpload]) -> None:
        """Apply all entries; the first call of a process removes files of an earlier one."""
        if not self._runs:
            await asyncio.to_thread(self._clear)
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Do nothing: see `resync`."""

    async def close(self) -> None:
        """End what runs, and remove its file."""
        for name in tuple(self._runs):
            await self._end(name)

    def _clear(self) -> None:
        for left in self._folder.glob(f"*{SUFFIX}"):
            left.unlink(missing_ok=True)

    async def _end(self, name: str) -> None:
        run = self._runs.pop(name, None)
        if run is not None:
            run.work.cancel()
            await asyncio.gather(run.work, return_exceptions=True)
            self._agent.facts.drop(BundleResult, name)

    async def _collect(self, task: BundleTask) -> None:
        """Make the bundle, send it, and record the result."""
        result = self._results.get(task.uid)
        if result is None:
            async with self._turn:
                log.info("Collecting a support bundle", name=task.name, url=task.url)
                result = BundleResult(task.name, task.uid, await self._sent(task))
            log.info("Finished a support bundle", name=task.name, err=result.error)
            self._results[task.uid] = result
            while len(self._results) > REMEMBERED:
                del self._results[next(iter(self._results))]
        self._agent.facts.put(result)

    async def _sent(self, task: BundleTask) -> str:
        """Send the bundle; return why it is not at the file server, empty if it is."""
        target = self._folder / f"{task.name}{SUFFIX}"
        try:
            # before the work of a bundle that goes nowhere
            expect_known_host(task.url, task.host_key, any_host_key=task.any_host_key)
            since = first_line(task.since)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            made = await make_bundle(self._agent.bundle, target, since, TOKEN_FILE, task.secrets)
            if made.why:
                return f"failed to generate support bundle: {made.why}"
            name = f"{self._agent.node.rpartition('/')[2]}_{task.name}{SUFFIX}"
            await uploaded(
                UploadOrder(task.url, name, str(target), _credentials(task), task.host_key, task.any_host_key)
            )
        except Invalid as error:
            self._warn(task, f"{task.url}: {error}")
            return str(error)
        except UploadFailed as error:
            self._warn(task, f"{task.url}: {error.why}")
            return str(error)
        except ValueError as error:
            return f"spec.sinceTime: {error}"
        except OSError as error:
            return f"failed to generate support bundle: {error}"
        except Exception as error:  # noqa: BLE001 (the collection ends with a status)
            log.error("Unexpected error while collecting a support bundle", name=task.name, error=error)
            return "internal error; see the agent log"
        finally:
            target.unlink(missing_ok=True)
        return ""

    def _warn(self, task: BundleTask, message: str) -> None:
        about = ObjectReference(
            api_version="crd.antrea.io/v1alpha1", kind="SupportBundleCollection", name=task.name, uid=task.uid
        )
        self._agent.record("BundleUploadFailed", message, warning=True, about=about)


def _credentials(task: BundleTask) -> Credentials:
    given, pair = task.credentials, task.credentials.basic_authentication
    return Credentials(
        pair.username if pair else "", pair.password if pair else "", given.bearer_token, given.api_key
    )


PART = CollectionPart
