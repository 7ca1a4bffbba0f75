"""Log files of a support bundle: the newest ones that fit, without the lines that are too old."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.outside.support_bundle.plan import Logs

_KLOG = re.compile(rb"[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.")
"""In local time, without a year."""
_OVS = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.\d+Z\|")


class LogFile:
    """One file, of which the last `size` bytes are taken."""

    def __init__(self, path: str, source: Path, size: int, whole: int) -> None:
        self.path = path
        self.source = source
        self.size = size
        self.whole = whole

    def lines(self, since: float | None) -> Iterator[bytes]:
        """Lines of the part that is taken, from `since` on. Raises OSError."""
        with self.source.open("rb") as file:
            if self.size < self.whole:
                file.seek(self.whole - self.size)
                # the rest of a line that has begun before
                file.readline()
            yield from _from(file, since, self.whole)


def _from(file: BinaryIO, since: float | None, end: int) -> Iterator[bytes]:
    begun = since is None
    while file.tell() < end and (line := file.readline()):
        if not begun and since is not None:
            said = moment(line, since)
            begun = said is not None and said >= since
        if begun:
            yield line


def moment(line: bytes, near: float) -> float | None:
    """When a line was written, in Unix time; None if it has no time. klog's year is the one that is nearest."""
    if match := _OVS.match(line):
        return datetime(*map(int, match.groups()), tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]
    if match := _KLOG.match(line):
        month, day, hour, minute, second = map(int, match.groups())
        year = time.localtime(near).tm_year
        candidates = (
            time.mktime((guessed_year, month, day, hour, minute, second, 0, 0, -1))
            for guessed_year in (year - 1, year, year + 1)
        )
        return min(candidates, key=lambda at: abs(at - near))
    return None


def chosen(logs: Logs, since: float | None, room: int) -> list[LogFile]:
    """The files of one folder, newest first, that fit into `room` bytes; the last one may be cut."""
    lines = []
    for path in _regular(Path(logs.source)):
        if not path.name.startswith(logs.prefix):
            continue
        try:
            state = path.stat()
        except OSError:
            # rotated away
            continue
        if since is None or state.st_mtime >= since:
            lines.append((state.st_mtime, path, state.st_size))
    files = []
    for _, path, size in sorted(lines, reverse=True):
        taken = min(size, room)
        room -= taken
        if taken or not size:
            files.append(LogFile(f"{logs.folder}/{path.name}", path, taken, size))
    return files


def _regular(directory: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path
