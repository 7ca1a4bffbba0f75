"""Collects one support bundle, in a process of its own: neither the loop nor the memory of an agent has to carry it.

`python -m antrea.outside.support_bundle.program` reads an Order as JSON and prints a Made. Every file goes through a Redaction.
What cannot be had is a line in the bundle's `bundleinfo`; what cannot be written ends it.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from antrea.outside.support_bundle import log as bundle_log
from antrea.outside.support_bundle.plan import Command, Made, Order
from antrea.outside.support_bundle.redaction import Redaction

if TYPE_CHECKING:
    from collections.abc import Iterator

NICENESS = 10
MAX_BYTES = 1 << 30
"""Bytes of any file that is written on the way, by a command, too."""
MAX_LINE_BYTES = 256 << 10
"""Bytes of a line; the rest of a longer one is left out."""
NOTES = "bundleinfo"


class _Full(Exception):
    """There is no room left for a bundle."""


class _Hashed:
    """A file that computes the hash of what is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


class Bundle:
    """A bundle in the making."""

    def __init__(self, order: Order, archive: tarfile.TarFile) -> None:
        self._order = order
        self._archive = archive
        self._folder = Path(order.target).parent
        self._until = time.monotonic() + order.limits.seconds
        self._notes: list[str] = []

    def collect(self) -> None:
        """Everything of the order. Raises _Full, OSError (the disk)."""
        order = self._order
        for path, document in order.documents.items():
            self._add(path, _document(document))
        for command in order.commands:
            self._run(command)
        room = order.limits.log_bytes
        for logs in order.logs:
            for file in bundle_log.chosen(logs, order.since, room):
                room -= file.size
                self._log(file)
        self._add(NOTES, iter([f"{note}\n".encode() for note in self._notes or ["everything was collected"]]))

    def _late(self, path: str) -> bool:
        if time.monotonic() < self._until:
            return False
        self._notes.append(f"{path}: left out, because the time of the bundle was up")
        return True

    def _log(self, file: bundle_log.LogFile) -> None:
        if self._late(file.path):
            return
        if file.size < file.whole:
            self._notes.append(f"{file.path}: the last {file.size} of {file.whole} bytes")
        try:
            self._add(file.path, file.lines(self._order.since), self._order.limits.log_bytes)
        except FileNotFoundError:
            self._notes.append(f"{file.path}: has gone")

    def _run(self, command: Command) -> None:
        if self._late(command.path):
            return
        program = shutil.which(command.arguments[0])
        if program is None:
            self._notes.append(f"{command.path}: {command.arguments[0]} is not installed")
            return
        with (
            tempfile.TemporaryFile(dir=self._folder) as output,
            tempfile.TemporaryFile(dir=self._folder) as trouble,
        ):
            why = self._ended([program, *command.arguments[1:]], command, output, trouble)
            if why:
                trouble.seek(0)
                said = trouble.read(2000).decode(errors="replace").strip()
                self._notes.append(
                    Redaction(self._order.known).line(f"{command.path}: {why} {said}".strip()) or why
                )
            output.seek(0)
            self._add(command.path, iter(lambda: output.readline(MAX_LINE_BYTES), b""))

    def _ended(self, arguments: list[str], command: Command, output: Any, trouble: Any) -> str:
        """Why it failed; empty if it has not."""
        seconds = min(self._order.limits.command_seconds, max(0.1, self._until - time.monotonic()))
        environment = {**os.environ, **command.environment}
        try:
            done = subprocess.run(
                arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=trouble, timeout=seconds, check=False,
                env=environment,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"cut off after {seconds:.3g} s."
        except OSError as error:
            return str(error)
        return f"exit status {done.returncode}." if done.returncode else ""

    def _add(self, path: str, lines: Iterator[bytes], most: int = 0) -> None:
        """A file of these lines, redacted. Raises _Full, OSError."""
        self._room()
        left = most or self._order.limits.piece_bytes
        redaction = Redaction(self._order.known)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            for line in lines:
                kept = redaction.line(line[:MAX_LINE_BYTES].decode(errors="replace").rstrip("\r\n"))
                if kept is None:
                    continue
                data = f"{kept}\n".encode()
                left -= len(data)
                if left < 0:
                    self._notes.append(f"{path}: cut off at its limit of bytes")
                    break
                file.write(data)
            file.flush()
            self._room()
            entry = tarfile.TarInfo(path)
            entry.size = file.tell()
            entry.mtime, entry.mode = int(time.time()), 0o644
            file.seek(0)
            self._archive.addfile(entry, file)

    def _room(self) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < self._order.limits.free_bytes:
            raise _Full(f"No space left on device: {free >> 20} MiB are free in {self._folder}")


def _document(document: Any) -> Iterator[bytes]:
    text = document if isinstance(document, str) else _yaml(document)
    return iter(text.encode().splitlines(keepends=True))


def _yaml(document: Any) -> str:
    import yaml  # noqa: PLC0415 (not every bundle has one)

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(
        yaml.dump(document, Dumper=dumper, sort_keys=True, default_flow_style=False, allow_unicode=True)
    )


def make(order: Order) -> Made:
    """The bundle, at its target; when it cannot be made, nothing is left there."""
    target = Path(order.target)
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        return Made(why=_describe_failure(error, target))
    try:
        with os.fdopen(descriptor, "wb") as file:
            hashed = _Hashed(file)
            with (
                gzip.GzipFile(fileobj=hashed, mode="wb", compresslevel=6, filename="", mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w") as archive,
            ):
                Bundle(order, archive).collect()
            file.flush()
            return Made(hashed.hash.hexdigest(), file.tell())
    except (_Full, OSError) as error:
        with contextlib.suppress(OSError):
            target.unlink()
        return Made(why=_describe_failure(error, target))


def _describe_failure(why: BaseException, target: Path) -> str:
    if isinstance(why, OSError) and why.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"No space left on device: {target.parent}"
    return str(why)


def main() -> None:
    """Entry point."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_BYTES, MAX_BYTES))
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdout.buffer.write(msgspec.json.encode(make(order)))


if __name__ == "__main__":
    main()
