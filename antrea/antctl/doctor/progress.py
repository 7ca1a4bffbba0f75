"""Progress of the doctor on stderr: at once on a terminal, elsewhere after a second."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType
    from typing import TextIO

QUIET_SECONDS: Final = 1.0
"""Seconds without a terminal before anything is printed."""
PERIOD_SECONDS: Final = 5.0
"""Seconds between two lines where stderr is not a terminal."""
MAX_NAMED: Final = 3


class Progress:
    """A line that names what has not answered yet, while the block runs."""

    def __init__(self, out: TextIO | None = None, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._out = out or sys.stderr
        self._quiet_seconds = quiet_seconds
        self._waiting: dict[str, None] = {}
        self._total = 0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def begin(self, name: str) -> None:
        """`name` is waited for."""
        with self._lock:
            self._waiting[name] = None
            self._total += 1

    def done(self, name: str) -> None:
        """`name` has answered, or is given up."""
        with self._lock:
            self._waiting.pop(name, None)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def text(self) -> str:
        """Return the line as of now."""
        with self._lock:
            names, total = list(self._waiting), self._total
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        waits = f"; waiting for {', '.join(names[:MAX_NAMED])}{more}" if names else ""
        return f"{total - len(names)} of {total} answers{waits}"

    def _run(self) -> None:
        if self._out.isatty():
            while not self._end.wait(0.2):
                self._out.write(f"\r\x1b[K{self.text()}")
                self._out.flush()
            self._out.write("\r\x1b[K")
            self._out.flush()
            return
        pause = self._quiet_seconds
        while not self._end.wait(pause):
            self._out.write(f"{self.text()}\n")
            self._out.flush()
            pause = PERIOD_SECONDS
