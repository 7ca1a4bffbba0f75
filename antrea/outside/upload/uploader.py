"""Runs the process that uploads one file."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import msgspec

from antrea.decoding import decode_json
from antrea.errors import Invalid, Unavailable
from antrea.outside.log import klog
from antrea.outside.upload.plan import Uploaded, UploadOrder

log = klog.logger(__name__)
GRACE_SECONDS = 30.0


async def uploaded(order: UploadOrder) -> None:
    """Wait until the file is at the server. Raises UploadFailed, in upstream's words after the last try."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "antrea.outside.upload.program"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    longest = order.tries * (order.connect_seconds + order.seconds + order.pause_seconds) + GRACE_SECONDS
    try:
        async with asyncio.timeout(longest):
            answer, trouble = await process.communicate(msgspec.json.encode(order))
        if process.returncode:
            message = trouble.decode(errors="replace").strip()[-300:]
            raise UploadFailed(f"its process ended with status {process.returncode}: {message}", 1)
        result = decode_json(answer, Uploaded, "answer of its process")
    except Invalid as error:
        raise UploadFailed(str(error), 1) from error
    except TimeoutError as error:
        raise UploadFailed(f"it was not uploaded within {longest:.0f} s", order.tries) from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    failures = result.failures
    for attempt, failure in enumerate(failures, 1):
        log.warning("Failed to upload a file", file=order.name, url=order.url, attempt=attempt, err=failure)
    if result.invalid:
        raise UploadFailed(result.invalid, 0)
    if len(failures) >= order.tries:
        raise UploadFailed(failures[-1], len(failures))
    log.info("Uploaded a file", file=order.name, url=order.url)


class UploadFailed(Unavailable):
    """Its text is upstream's; `why` is the reason of the last try. `tries` 0: the plan itself is wrong, and that is its text."""

    def __init__(self, why: str, tries: int) -> None:
        super().__init__(f"failed to upload file after {tries} attempts" if tries else why)
        self.why = why
