"""Serves support bundles of one program: starts a collection, reports its progress, hands out the file, removes it.

parity: pkg/apiserver/registry/system/supportbundle/rest.go (one bundle at a time, under one name, for an hour). Where
upstream's status falls back to None when a collection fails, ours answers a read with what went wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import linecache
import os
import secrets
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from antrea.apis.meta import ObjectMetadata, Status, StatusDetails
from antrea.apis.system import GROUP, SupportBundle
from antrea.config.shape import seconds
from antrea.decoding import decode_json
from antrea.errors import Invalid
from antrea.outside.apiserver.server import DOWNLOAD
from antrea.outside.apiserver.status import ApiError
from antrea.outside.kube.access import SERVICE_ACCOUNT
from antrea.outside.kube.clock import stamp
from antrea.outside.log import klog
from antrea.outside.support_bundle.plan import Made, Order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from antrea.outside.apiserver.attributes import Attributes
    from antrea.outside.apiserver.objects import Question, Stream

    Contents = Callable[[], Awaitable[Order]]

log = klog.logger(__name__)
FOLDER = "bundles"
"""Folder of the controller's bundles, beside its token: its /tmp is small and in memory."""
EXPIRE_SECONDS = 3600.0
GRACE_SECONDS = 60.0
"""On top of a bundle's own limit of time, until its process is killed."""
DOWNLOAD_SECONDS = 900.0
BLOCK = 64 << 10
NONE, COLLECTING, COLLECTED = "None", "Collecting", "Collected"


class SupportBundles:
    """The resource supportbundles of one program, which has one object, `name`.

    `contents` is what the bundle is made of; target, since and known secrets are filled in here. `folder` is for
    bundles alone and outlives this process: what is left there goes. None: the system's folder of temporary files.
    """

    def __init__(
        self, name: str, contents: Contents, *, token_file: Path, folder: Path | None = None
    ) -> None:
        self._name = name
        self._contents = contents
        self._token_file = token_file
        self._folder = folder or Path(tempfile.gettempdir())
        self._is_own = folder is not None
        self._work: asyncio.Task[None] | None = None
        self._target: Path | None = None
        self._shown = self._none()
        self._why = ""
        """Why there is no bundle, if the last collection failed."""

    def _none(self) -> SupportBundle:
        return SupportBundle(metadata=ObjectMetadata(name=self._name), status=NONE)

    @property
    def streams(self) -> dict[tuple[str, str], Stream]:
        """The file, which is not an object."""
        return {("supportbundles", DOWNLOAD): self._download}

    async def answer(self, question: Question) -> msgspec.Struct:
        """Raises Answered: 400, 403, 404, 500 (why the collection failed)."""
        if question.verb == "create":
            return await self._create(question.body)
        self._only_own(question.name)
        if question.verb == "delete":
            await self.close()
            return Status(status="Success", code=200)
        if self._why:
            raise ApiError(500, f"the support bundle could not be collected: {self._why}")
        return self._shown

    def _only_own(self, name: str) -> None:
        if name != self._name:
            details = StatusDetails(name=name, group=GROUP, kind="supportBundle")
            raise ApiError(404, f'supportBundle.{GROUP} "{name}" not found', details)

    async def _create(self, wanted: SupportBundle) -> SupportBundle:
        name = wanted.metadata.name
        if name != self._name:
            message = f'only resource name "{self._name}" is allowed'
            raise ApiError(403, f'supportbundles.{GROUP} "{name}" is forbidden: {message}')
        try:
            since = first_line(wanted.since)
        except ValueError as error:
            raise ApiError(400, f"since: {error}") from error
        await self.close()
        if self._is_own:
            self._clear()
        self._shown = SupportBundle(metadata=ObjectMetadata(name=name), since=wanted.since, status=COLLECTING)
        self._work = asyncio.create_task(self._life(wanted.since, since), name="support bundle")
        return self._shown

    def _clear(self) -> None:
        """Remove what a process before this one has left. Raises Answered."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in self._folder.glob("bundle_*.tar.gz"):
                left.unlink()
        except OSError as error:
            raise ApiError(500, f"{self._folder}: {error.strerror}") from error

    async def close(self) -> None:
        """End a collection that runs, and remove the file."""
        work, self._work = self._work, None
        if work:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        self._shown, self._why = self._none(), ""

    async def _life(self, said: str, since: float | None) -> None:
        """Keep a bundle from the beginning of its collection until it expires."""
        target = self._folder / f"bundle_{secrets.token_hex(5)}.tar.gz"
        try:
            made = await self._made(target, since)
            if made.why:
                log.error("Failed to collect a support bundle", why=made.why)
                self._shown, self._why = self._none(), made.why
                return
            now = time.time()
            self._target = target
            self._shown = SupportBundle(
                metadata=ObjectMetadata(
                    name=self._name,
                    creation_timestamp=stamp(now),
                    deletion_timestamp=stamp(now + EXPIRE_SECONDS),
                ),
                status=COLLECTED,
                sum=made.sum,
                since=said,
                size=made.size,
            )
            log.info("Collected a support bundle", file=str(target), bytes=made.size)
            await asyncio.sleep(EXPIRE_SECONDS)
            self._shown = self._none()
        finally:
            self._target = None
            target.unlink(missing_ok=True)

    async def _made(self, target: Path, since: float | None) -> Made:
        return await make_bundle(self._contents, target, since, self._token_file)

    async def _download(self, request: web.Request, attributes: Attributes) -> web.StreamResponse:
        self._only_own(attributes.name)
        if self._target is None:
            raise ApiError(404, f'supportbundles.{GROUP} "{self._name}" has not been collected')
        response = web.StreamResponse(headers={"Content-Type": "application/tar+gz"})
        with self._target.open("rb") as file:
            response.content_length = self._shown.size
            async with asyncio.timeout(DOWNLOAD_SECONDS):
                await response.prepare(request)
                while block := file.read(BLOCK):
                    await response.write(block)
                await response.write_eof()
        return response


def first_line(since: str) -> float | None:
    """Unix time of the oldest lines of logs that are wanted; None for all. Raises ValueError for what is not a duration."""
    return time.time() - seconds(since) if since else None


async def make_bundle(
    contents: Contents, target: Path, since: float | None, token_file: Path, known: Iterable[str] = ()
) -> Made:
    """Collect one bundle into `target`; `known` are secrets to take out beside those of this program.

    `since`: Unix time of the first line of logs, None for all.
    """
    try:
        secrets_known = (*_known(token_file), *known)
        order = msgspec.structs.replace(
            await contents(), target=str(target), since=since, known=secrets_known
        )
        return await _collected(order)
    except Exception as error:  # noqa: BLE001 (the answer names the failure)
        log.error("Unexpected error while collecting a support bundle", error=error)
        return Made(why="an internal error, which the log of the program has")


def _known(token_file: Path) -> list[str]:
    """Secrets of this program."""
    from antrea.outside.support_bundle.redaction import of_environment  # noqa: PLC0415 (start-up time)

    limits = of_environment(os.environ)
    for path in (token_file, SERVICE_ACCOUNT / "token"):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            limits.append(path.read_text(encoding="ascii"))
    return limits


async def _collected(order: Order) -> Made:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "antrea.outside.support_bundle.program"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(order.limits.seconds + GRACE_SECONDS):
            said, trouble = await process.communicate(msgspec.json.encode(order))
        if process.returncode:
            message = trouble.decode(errors="replace").strip()[-300:]
            return Made(why=f"its process ended with status {process.returncode}: {message}")
        return decode_json(said, Made, "answer of its process")
    except Invalid as error:
        return Made(why=str(error))
    except TimeoutError:
        return Made(why=f"it was not collected within {order.limits.seconds + GRACE_SECONDS:.0f} s")
    finally:
        # it leads a session of its own, so that its commands end with it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:
            await process.wait()


def memory() -> str:
    """How much memory this process has, and what its collector of garbage did."""
    limits = []
    for name in ("status", "smaps_rollup", "limits"):
        with contextlib.suppress(OSError):
            limits.append(f"{name}\n{Path('/proc/self', name).read_text(encoding='ascii')}")
    return "\n".join([*limits, f"garbage collector\n{gc.get_count()} {gc.get_stats()}\n"])


def stacks() -> str:
    """Where every task and thread of this process is."""
    lines = []
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        lines.append(f"task {task.get_name()}\n")
        lines += [line for frame in task.get_stack() for line in traceback.format_stack(frame, 1)]
    for number, frame in sys._current_frames().items():
        lines += [f"\nthread {number}\n", *traceback.format_stack(frame)]
    # the lines of every file that was looked into are kept otherwise
    linecache.clearcache()
    return "".join(lines)
