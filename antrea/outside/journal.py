"""The file that small numbers outlive the agent in: one line of JSON per record, only ever appended or replaced whole."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import msgspec

from antrea.engine import Record
from antrea.errors import Unavailable
from antrea.outside import klog

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

log = klog.logger(__name__)


class FileJournal:
    """An `engine.Journal`. It is written, not synced: it has to outlive the process, as OVS does, not the machine."""

    def __init__(self, path: Path) -> None:
        """Opens or makes the file, and cuts off a line that a kill left unfinished. Raises Unavailable."""
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
            text = path.read_bytes()
            self.blank = not text
            """Nothing was in it: the first start on this machine, or somebody has removed it."""
            os.ftruncate(self._file, text.rfind(b"\n") + 1)
        except OSError as why:
            raise self._unavailable("open", why) from why

    def close(self) -> None:
        """Nothing is lost by not calling it."""
        os.close(self._file)

    def read(self) -> list[Record]:
        """All records, oldest first; a line that is none is named in the log and left out. Raises Unavailable."""
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError as why:
            raise self._unavailable("read", why) from why
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                records.append(msgspec.json.decode(line, type=Record))
            except msgspec.DecodeError as why:
                log.error("Ignored a line of the journal of ids", error=why, path=self._path, line=number)
        return records

    def append(self, record: Record) -> None:
        """Raises Unavailable; then the file is as it was."""
        line = _line(record)
        size = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) == len(line):
                return
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as why:
            os.ftruncate(self._file, size)
            raise self._unavailable("write", why) from why

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replace the file in one step; where that is not possible the longer one, which says the same, stays."""
        fresh = self._path.with_name(f".{self._path.name}.part")
        try:
            fresh.write_bytes(b"".join(map(_line, records)))
            fresh.chmod(0o600)
            fresh.replace(self._path)
            old, self._file = self._file, self._open()
            os.close(old)
        except OSError as why:
            fresh.unlink(missing_ok=True)
            log.warning("The journal of ids cannot be shortened", path=self._path, err=why.strerror)

    def _open(self) -> int:
        return os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _unavailable(self, verb: str, why: OSError) -> Unavailable:
        return Unavailable(f"cannot {verb} the journal of ids {self._path}: {why.strerror}")


def _line(record: Record) -> bytes:
    return msgspec.json.encode(record) + b"\n"
