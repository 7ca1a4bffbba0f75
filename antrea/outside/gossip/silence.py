"""The networks in which neighbours do not answer members: each sends its own list to all others, again and again as long as there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.outside.gossip.message import Silence

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_BATCH: Final = 4
"""Times that a new list is sent soon."""
SOON_SECONDS: Final = 0.25
AGAIN_SECONDS: Final = 10.0
AFTERWARDS: Final = 6
"""Times that it is sent again when there are none any more."""


class SilentNetworks:
    """Silent networks that this member and others report."""

    def __init__(self) -> None:
        self.reports: dict[str, tuple[str, ...]] = {}
        """Reports by member."""
        self.changed: set[str] = set()
        """Members whose report is new; the reader empties it."""
        self._own: tuple[str, ...] | None = None
        self._sent = 0
        """Times, of the present list."""
        self._most = 0
        self._due = 0.0

    def observe(self, now: float, networks: tuple[str, ...]) -> None:
        """This member's from now on."""
        if networks != self._own:
            self._most = MAX_BATCH + AFTERWARDS * (self._own is not None)
            self._own, self._sent, self._due = networks, 0, now

    def merge(self, sender: str, networks: tuple[str, ...]) -> None:
        """Record a member's report of itself."""
        if self.reports.get(sender) != networks:
            self.reports[sender] = networks
            self.changed.add(sender)

    def keep_only(self, members: Collection[str]) -> None:
        """All others are forgotten."""
        self.reports = {name: networks for name, networks in self.reports.items() if name in members}
        self.changed &= self.reports.keys()

    def due_report(self, now: float) -> Silence | None:
        """Return the report that is due for all members."""
        if self._own is None or now < self._due or (not self._own and self._sent >= self._most):
            return None
        self._sent += 1
        self._due = now + (SOON_SECONDS if self._sent < MAX_BATCH else AGAIN_SECONDS)
        return Silence(self._own)
