"""A program's configuration as it changes: the mounted file at start, then what `reload` hears of the ConfigMap.

A change takes effect without a restart of the Pod; one that cannot work is refused and the last good one goes on, also
over a restart, for which its text is kept on disk. Upstream reads its configuration once, at start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from antrea.config.effect import InEffect, begin, offer
from antrea.config.load import read
from antrea.errors import Invalid
from antrea.outside import klog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = klog.logger(__name__)
S = TypeVar("S", bound=msgspec.Struct)
G = TypeVar("G")


class Configuration(Generic[S, G]):
    """What is in effect, in `now`; `accept` says which gates a configuration has, or raises Invalid."""

    def __init__(self, kind: type[S], accept: Callable[[S], G], file: Path, kept: Path) -> None:
        """Reads `file`, or `kept`, the last good text, where that is newer or the file cannot work. Raises Invalid."""
        self.told: InEffect[S, G] | None = None
        """What the user has heard of."""
        self._accept = accept
        self._kept = kept
        self._before: InEffect[S, G] | None = None
        self._failed: str | None = None
        """A text that passed every check and failed at work."""
        try:
            # a mounted file is as old as its Pod, and may have been overtaken by what the API told since
            self.now = begin(kind, accept, read(kept if _newer(kept, file) else file))
        except Invalid as no:
            if not kept.exists():
                raise
            self.now = msgspec.structs.replace(begin(kind, accept, read(kept)), rejected=str(no))
            log.error("The configuration is refused, the last good one goes on", error=no, file=kept)
        self._was_refused = bool(self.now.rejected)

    @property
    def is_new(self) -> bool:
        """Whether the program has not yet worked with it."""
        return self._before is not None

    def offer(self, text: str) -> bool:
        """Take what the user wrote; whether the program has to be rebuilt. `now.rejected` says why it was refused."""
        if text == self._failed:
            return False
        before, self.now = self.now, offer(self.now, self._accept, text)
        self._was_refused |= bool(self.now.rejected)
        changed = self.now.same_for_the_program != before.same_for_the_program
        if changed:
            self._before = before
        return changed

    def recovers(self) -> bool:
        """Whether the program works with what came after a text that was refused; true once for each time."""
        found = self._was_refused and not (self.now.rejected or self.is_new)
        if found:
            self._was_refused = False
        return found

    def works(self) -> None:
        """The program runs with `now`: keep its text for a start at which the file cannot work.

        A text with keys that wait has not been proven as a whole; a Pod that is made anew reads it from its file.
        """
        self._before = None
        if self.now.rejected or self.now.pending:
            return
        fresh = self._kept.with_name(f".{self._kept.name}.part")
        try:
            fresh.write_text(self.now.text, encoding="utf-8")
            fresh.replace(self._kept)
        except OSError as why:
            log.warning(
                "The configuration cannot be kept for later starts", path=self._kept, err=why.strerror
            )

    def fails(self, why: Invalid) -> bool:
        """The program cannot run with `now`; whether there is one before it to go back to, which is then `now`."""
        if self._before is None:
            return False
        self._failed = self.now.text
        self.now = msgspec.structs.replace(self._before, rejected=str(why))
        self._before, self._was_refused = None, True
        return True


def _newer(kept: Path, file: Path) -> bool:
    try:
        return kept.stat().st_mtime_ns > file.stat().st_mtime_ns
    except OSError:
        return False
