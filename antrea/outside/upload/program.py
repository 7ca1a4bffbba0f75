"""Uploads one file, in a process of its own: ciphers and libraries leave the agent alone.

`python -m antrea.outside.upload.program` reads an UploadOrder as JSON and prints Uploaded. No secret is printed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import msgspec

from antrea.errors import Invalid, Unavailable
from antrea.outside.upload.plan import Uploaded, UploadOrder, expect_known_host, target

NICENESS = 10
MAX_LENGTH = 400
"""Characters of one reason."""


def attempt(order: UploadOrder) -> str:
    """Why it failed; empty if it has not. Raises Invalid for what no other try would change."""
    try:
        expect_known_host(order.url, order.host_key, any_host_key=order.any_host_key)
        place = target(order.url, order.name)
        if place.scheme == "sftp":
            from antrea.outside.upload.sftp import upload  # noqa: PLC0415 (its library is large)

            asyncio.run(upload(order, place))
        else:
            from antrea.outside.upload import https  # noqa: PLC0415 (the same)

            https.upload(order, place)
    except Unavailable as error:
        return str(error)[:MAX_LENGTH]
    return ""


def upload_file(order: UploadOrder) -> Uploaded:
    """Try as often as the plan has it."""
    failures: list[str] = []
    while len(failures) < order.tries:
        if failures:
            time.sleep(order.pause_seconds)
        try:
            why = attempt(order)
        except Invalid as error:
            return Uploaded(tuple(failures), str(error)[:MAX_LENGTH])
        if not why:
            break
        failures.append(why)
    return Uploaded(tuple(failures))


def main() -> None:
    """Entry point."""
    os.nice(NICENESS)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=UploadOrder)
    sys.stdout.buffer.write(msgspec.json.encode(upload_file(order)))


if __name__ == "__main__":
    main()
