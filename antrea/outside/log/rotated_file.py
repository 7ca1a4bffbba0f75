"""A log file that is put aside when it is full, under the time at which that was; the oldest of these go.

parity: gopkg.in/natefinch/lumberjack.v2 (names and limits)
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from antrea.config.agent_sections import AuditLogging

_MEGABYTE = 1024 * 1024
_DAY = 24 * 3600
_FORMAT = "%Y-%m-%dT%H-%M-%S"


class RotatedFile:
    """`path`, such as np.log; those put aside are np-2026-11-21T15-00-00.000.log, or .log.gz."""

    def __init__(self, path: Path, limits: AuditLogging) -> None:
        self._path = path
        self._limits = limits
        self._file = -1
        self._size = 0
        self._aside = re.compile(
            rf"{re.escape(path.stem)}-(\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d)\.\d{{3}}{re.escape(path.suffix)}(\.gz)?",
            re.ASCII,
        )

    def write(self, text: bytes) -> bool:
        """Append whole lines; True if the file was full, so that it is time to `tidy`. Raises OSError."""
        if self._file < 0:
            self._open()
        full = self._size > 0 and self._size + len(text) > self._limits.max_size * _MEGABYTE
        if full:
            self._put_aside()
            self._open()
        written = os.write(self._file, text)
        self._size += written
        if written < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return full

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def tidy(self) -> None:
        """Remove what is too much or too old, compress the rest; takes its time. Raises OSError."""
        aside = sorted(
            (
                (match[1], path)
                for path in self._siblings()
                if (match := self._aside.fullmatch(path.name)) and _seconds(match[1]) is not None
            ),
            reverse=True,
        )
        oldest = time.time() - self._limits.max_age * _DAY
        for place, (when, path) in enumerate(aside):
            too_old = self._limits.max_age and (_seconds(when) or 0.0) < oldest
            if too_old or (self._limits.max_backups and place >= self._limits.max_backups):
                path.unlink(missing_ok=True)
            elif self._limits.compress and path.suffix != ".gz":
                _compress(path)

    def _siblings(self) -> list[Path]:
        return list(self._path.parent.iterdir())

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size

    def _put_aside(self) -> None:
        self.close()
        now = datetime.now(UTC)
        when = f"{now.strftime(_FORMAT)}.{now.microsecond // 1000:03d}"
        self._path.rename(self._path.with_name(f"{self._path.stem}-{when}{self._path.suffix}"))


def _seconds(when: str) -> float | None:
    """None for text that looks like a time and is none, such as the 99th of a month: not one of our files."""
    try:
        return datetime.strptime(when, _FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _compress(path: Path) -> None:
    """At no moment is there half a file under either name."""
    fresh = path.with_name(f".{path.name}.gz")
    with path.open("rb") as source, gzip.open(fresh, "wb") as target:
        shutil.copyfileobj(source, target, _MEGABYTE)
    fresh.chmod(0o600)
    fresh.replace(path.with_name(f"{path.name}.gz"))
    path.unlink()
