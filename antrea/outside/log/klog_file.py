"""klog's log files: one set per severity, a symbolic link to the newest, a limit of size and number."""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import socket
import time
from pathlib import Path
from typing import TextIO


class SeverityFile(logging.Handler):
    """Writes records of `severity` and above to PROGRAM.HOST.USER.log.SEVERITY.YYYYMMDD-HHMMSS.PID in `directory`.

    A file that would grow over `max_bytes` is followed by a new one, of which the newest `max_files` stay
    (0: no limit, for both). A full or missing disk loses lines and never stops the program.
    """

    def __init__(self, directory: str, program: str, severity: str, max_bytes: int, max_files: int) -> None:
        super().__init__(logging.getLevelNamesMapping()[severity] if severity != "INFO" else logging.NOTSET)
        self._directory = Path(directory)
        self._program = program
        self._severity = severity
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._file: TextIO | None = None
        self._size = 0
        self._turn = 0

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        length = len(line.encode(errors="replace"))
        try:
            if self._file is None or (self._max_bytes and self._size + length > self._max_bytes):
                self._next_file()
            if self._file:
                self._file.write(line)
                self._file.flush()
                self._size += length
        except OSError:
            self._close_file()

    def close(self) -> None:
        self._close_file()
        super().close()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file:
            with contextlib.suppress(OSError):
                file.close()

    def _stem(self) -> str:
        host = socket.gethostname().partition(".")[0]
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = "unknownuser"
        return f"{self._program}.{host}.{user}.log.{self._severity}"

    def _next_file(self) -> None:
        self._close_file()
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"{self._stem()}.{time.strftime('%Y%m%d-%H%M%S')}.{os.getpid()}"
        if self._turn and (self._directory / name).exists():
            name = f"{name}.{self._turn}"
        self._turn += 1
        self._file = (self._directory / name).open("w", encoding="utf-8", errors="replace")
        head = (
            f"Log file created at: {time.strftime('%Y/%m/%d %H:%M:%S')}\n"
            f"Running on machine: {socket.gethostname()}\n"
            "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg\n"
        )
        self._file.write(head)
        self._size = len(head)
        link = self._directory / f"{self._program}.{self._severity}"
        fresh = self._directory / f".{link.name}.{os.getpid()}"
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(name)
            fresh.replace(link)
        self._prune(name)

    def _prune(self, newest: str) -> None:
        if not self._max_files:
            return
        files = [p for p in self._directory.glob(f"{self._stem()}.*") if p.name != newest]
        files.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in files[self._max_files - 1 :]:
            path.unlink(missing_ok=True)
