"""Progress bar on stderr, if that is a terminal."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

WIDTH = 40


class Bar:
    """Counts to `total`, from any thread."""

    def __init__(self, total: int, out: TextIO | None = None) -> None:
        self._total = total
        self._out = out or sys.stderr
        self._done = 0
        self._began = time.monotonic()
        self._what = ""
        self._lock = threading.Lock()
        self._shown = self._out.isatty()

    def show(self, what: str) -> None:
        """Set the item that is counted from now on."""
        with self._lock:
            self._what = what
            self._draw()

    def step(self) -> None:
        """One more is done."""
        with self._lock:
            self._done += 1
            self._draw()

    def end(self) -> None:
        """Leave the bar as it is."""
        self.show("Finish ")
        if self._shown:
            self._out.write("\n")
            self._out.flush()

    def _draw(self) -> None:
        if not self._shown:
            return
        share = self._done / self._total if self._total else 1.0
        filled = int(share * WIDTH)
        head = "" if filled >= WIDTH else ">"
        line = f"{'-' * filled}{head}".ljust(WIDTH, "_")
        spent = time.monotonic() - self._began
        left = f" ETA {spent / share - spent:.0f}s" if 0 < share < 1 else ""
        self._out.write(f"\r\x1b[K{self._what}[{line}] {share:.2%}{left}")
        self._out.flush()
