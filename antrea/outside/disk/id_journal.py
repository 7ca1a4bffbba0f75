"""The journal that keeps IDs over restarts of the agent: one line per record, only ever appended or replaced whole.

A damaged record is left out, and `complete` is then False: missing IDs may be in use in
the switch, so that new ones have to start above those (antrea.agent.switch.id_recovery).
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from antrea.engine import Record
from antrea.errors import Unavailable
from antrea.outside.disk.state_file import Damaged, Lines, line_of, lines_in, read_bytes, set_aside
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

log = klog.logger(__name__)

_NUMBERS = range(1 << 32)
"""Numbers that fit the widest field that carries one."""


class FileJournal:
    """An `engine.Journal`. It is written, not synced: it has to outlive the process, as OVS does, not the machine."""

    def __init__(self, path: Path) -> None:
        """Opens or makes the file; what is damaged in it is logged and kept aside. Raises Unavailable."""
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
            text, lines = self._lines()
            self.complete = bool(text) and not lines.damaged
            """Otherwise it is the first start on this machine, the file was removed, or a part of it is lost."""
            if lines.damaged:
                aside = set_aside(path)
                log.error(
                    "The ID journal is damaged; new IDs start above those in the switch",
                    path=path, lines=len(lines.damaged), first=lines.damaged[0], aside=aside,
                )  # fmt: skip
            # a line that a kill left unfinished, or all of a file that nobody of us has written
            os.ftruncate(self._file, text.rfind(b"\n") + 1)
        except OSError as error:
            raise self._unavailable("open", error) from error

    def close(self) -> None:
        """Nothing is lost by not calling it."""
        os.close(self._file)

    def read(self) -> list[Record]:
        """All records, oldest first, without those that are damaged. Raises Unavailable."""
        try:
            _, lines = self._lines()
        except OSError as error:
            raise self._unavailable("read", error) from error
        return [record for record in lines.values if record.number in _NUMBERS]

    def append(self, record: Record) -> None:
        """Raises Unavailable; then the file is as it was."""
        line = line_of(record)
        size = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) == len(line):
                return
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(self._file, size)
            raise self._unavailable("write", error) from error

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replace the file in one step; on failure the longer one, with the same meaning, stays."""
        fresh = self._path.with_name(f".{self._path.name}.part")
        try:
            fresh.write_bytes(b"".join(map(line_of, records)))
            fresh.chmod(0o600)
            fresh.replace(self._path)
            old, self._file = self._file, self._open()
            os.close(old)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            log.warning("Failed to compact the ID journal", path=self._path, err=error.strerror)

    def _lines(self) -> tuple[bytes, Lines]:
        try:
            text = read_bytes(self._path)
        except Damaged:
            return b"", Lines([], (1,))
        return text, lines_in(text, Record)

    def _open(self) -> int:
        return os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _unavailable(self, verb: str, why: OSError) -> Unavailable:
        return Unavailable(f"cannot {verb} the journal of ids {self._path}: {why.strerror}")
