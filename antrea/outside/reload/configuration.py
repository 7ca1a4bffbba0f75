"""A program's configuration as it changes: the mounted file at start, then the ConfigMap as `supervisor` watches it.

A change takes effect without a restart of the Pod; an invalid one is rejected and the last valid one stays in effect,
also over a restart, for which its text is kept on disk. Upstream reads its configuration once, at start.
"""

from __future__ import annotations

import re
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from antrea.config.effect import InEffect, begin, offer
from antrea.config.load import read
from antrea.decoding import decode_text
from antrea.errors import Invalid
from antrea.outside.disk.state_file import read_bytes, set_aside
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

log = klog.logger(__name__)
_HEAD = re.compile(r"# last good configuration, digest of what follows: ([0-9a-f]{64})\n")
S = TypeVar("S", bound=msgspec.Struct)
G = TypeVar("G")


class Configuration(Generic[S, G]):
    """The configuration in effect, `now`; `accept` returns the gates of a configuration, or raises Invalid."""

    def __init__(
        self,
        kind: type[S],
        accept: Callable[[S], G],
        file: Path,
        kept: Path,
        compare: Callable[[G, Mapping[str, str]], Iterable[str]] = lambda *_: (),
        *,
        corrected: str | None = None,
    ) -> None:
        """Reads `file`, or `kept`, the last good text, where that is newer or the file cannot work. Raises Invalid.

        `corrected` is the text of the ConfigMap where neither of them can work, which is then the only one that is read.
        `compare` returns a sentence for everything in which files of other programs, by name, do not fit the gates.
        """
        self.compare = compare
        self.compared: tuple[str, ...] = ()
        """Sentences of `compare` that were reported to the user."""
        self.reported: InEffect[S, G] | None = None
        """Configuration that was last reported to the user."""
        self._accept = accept
        self._kept = kept
        self._failed: str | None = None
        """A text that passed every check and failed at work."""
        self.is_new = False
        """Whether `now` has overtaken another, and the program has not yet worked with it."""
        # a mounted file is as old as its Pod, and may have been overtaken by what the API told since
        readers: list[Callable[[], str]] = [partial(read, file)]
        if (good := _read_kept(kept)) is not None:
            readers.insert(0 if _newer(kept, file) else 1, lambda: good)
        if corrected is not None:
            readers = [lambda: corrected]
        self.now, self._before = _choose_working(kind, accept, readers)
        """`_before`: what to go back to if `now` fails, the latest first; empty once it has worked."""
        self._was_refused = bool(self.now.rejected)

    def offer(self, text: str) -> bool:
        """Take a new text; returns whether the program has to be rebuilt. `now.rejected` is why it was rejected."""
        if text == self._failed:
            return False
        self._failed = None
        before, self.now = self.now, offer(self.now, self._accept, text)
        self._was_refused |= bool(self.now.rejected)
        changed = not self.runs(before)
        if changed:
            # of those that nobody has seen at work the latest is enough: below it is the one that has worked
            self._before = [before, *self._before[-1:]]
            self.is_new = True
        return changed

    def runs(self, ran: InEffect[S, G]) -> bool:
        """Whether a program that was built for `ran` is the one for `now`."""
        return self.now.same_for_the_program == ran.same_for_the_program

    def keeps(self, *fields: str) -> bool:
        """Whether these are in `now` as they are in what there is to go back to in the end."""
        before, now = (self._before or [self.now])[-1].config, self.now.config
        return all(getattr(now, field) == getattr(before, field) for field in fields)

    def recovers(self) -> bool:
        """Whether the program works with what came after a text that was refused; true once for each time."""
        has_recovered = self._was_refused and not (self.now.rejected or self.is_new)
        if has_recovered:
            self._was_refused = False
        return has_recovered

    def works(self) -> None:
        """The program runs with `now`: keep its text for a start at which the file cannot work.

        A text with keys that wait has not been proven as a whole; a Pod that is made anew reads it from its file.
        """
        self._before, self.is_new = [], False
        if self.now.rejected or self.now.pending:
            return
        fresh = self._kept.with_name(f".{self._kept.name}.part")
        try:
            fresh.write_bytes(_kept_text(self.now.text))
            fresh.replace(self._kept)
        except OSError as error:
            log.warning(
                "Failed to save the configuration for later starts", path=self._kept, err=error.strerror
            )

    def fails(self, why: Invalid) -> bool:
        """The program cannot run with `now`; whether there is one before it to go back to, which is then `now`."""
        if not self._before:
            return False
        self._failed = self.now.text
        before, *self._before = self._before
        self.now = msgspec.structs.replace(before, rejected=str(why))
        self.is_new, self._was_refused = bool(self._before), True
        return True


def _choose_working(
    kind: type[S], accept: Callable[[S], G], readers: Iterable[Callable[[], str]]
) -> tuple[InEffect[S, G], list[InEffect[S, G]]]:
    """Return the first of these that can work, and the others that may replace it. Raises Invalid if none can work."""
    usable: list[InEffect[S, G]] = []
    refused: list[Invalid] = []
    for reader in readers:
        try:
            usable.append(begin(kind, accept, reader()))
        except Invalid as error:
            refused += [] if usable else [error]
    if not usable:
        raise refused[0]
    now, *others = usable
    if refused:
        log.error("Rejected the configuration; the last valid one stays in effect", error=refused[0])
        now = msgspec.structs.replace(now, rejected=str(refused[0]))
    return now, [other for other in others if other.same_for_the_program != now.same_for_the_program]


def _kept_text(text: str) -> bytes:
    """With a first line, a comment in YAML, by which a start finds damage."""
    body = text.encode()
    return f"# last good configuration, digest of what follows: {_digest(body)}\n".encode() + body


def _read_kept(path: Path) -> str | None:
    """Parse the result of `_kept_text`; None for anything else, which is logged: half of a text may be a configuration, too."""
    try:
        text = decode_text(read_bytes(path), str(path))
        head = _HEAD.match(text)
        if head is None or head[1] != _digest(text[head.end() :].encode()):
            raise ValueError("it is not what was written")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, Invalid) as error:
        log.error(
            "The saved configuration is damaged; using the mounted file",
            error=error, path=path, aside=set_aside(path),
        )  # fmt: skip
        return None
    return text[head.end() :]


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=32).hexdigest()


def _newer(kept: Path, file: Path) -> bool:
    try:
        return kept.stat().st_mtime_ns > file.stat().st_mtime_ns
    except OSError:
        return False
