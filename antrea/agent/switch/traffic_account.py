"""Traffic that this Node has counted, and how much of it is reported: exactly once, over restarts of agent and controller.

A controller counts in memory, under an epoch that it returns with each response. After a change of the epoch everything is
reported again. A report has a number, and keeps its content until it is acknowledged: a report that arrives twice, because the
response was lost or the agent restarted, is counted once.
"""

from __future__ import annotations

import uuid
from itertools import islice

import msgspec

from antrea.apis.stats import TrafficStats
from antrea.features.framework.traffic import Share

Rows = list[tuple[Share, TrafficStats]]


def _fresh() -> str:
    return uuid.uuid4().hex


class Account(msgspec.Struct):
    """State of the account, kept in a file between agents of this Node."""

    name: str = msgspec.field(default_factory=_fresh)
    """Name of the account; a new one, with its own report numbers, if this file is lost."""
    epoch: str = ""
    """Epoch of the controller that received the last report; empty if none did."""
    serial: int = 0
    """Number of the last report that was begun."""
    sending: Rows = []
    """Content of the last report, until it is acknowledged."""
    owed: Rows = []
    """Traffic that is still to be reported."""
    totals: Rows = []
    """Traffic of each share that still exists, reported or not."""


class TrafficAccountStore:
    """Account in memory."""

    def __init__(self, kept: Account) -> None:
        self.name, self.epoch, self.serial = kept.name, kept.epoch, kept.serial
        self.sending = dict(kept.sending)
        self.owed = dict(kept.owed)
        self.totals = dict(kept.totals)
        self._absent: set[Share] = set()

    @property
    def kept(self) -> Account:
        """State to be read by the next agent."""
        rows = (list(shares.items()) for shares in (self.sending, self.owed, self.totals))
        return Account(self.name, self.epoch, self.serial, *rows)

    def add(self, share: Share, by: TrafficStats) -> None:
        """Add counted traffic."""
        for rows in (self.owed, self.totals):
            rows[share] = rows.get(share, TrafficStats()) + by

    def begin(self, most: int) -> dict[Share, TrafficStats]:
        """Return the next report, of at most `most` shares; the last one if it has no response yet, and {} if nothing is owed."""
        if not self.sending and self.owed:
            self.sending = dict(islice(self.owed.items(), most))
            self.owed = dict(islice(self.owed.items(), most, None))
            self.serial += 1
        return self.sending

    def answered(self, epoch: str) -> None:
        """Record that a controller of this epoch received the report; an empty epoch is that of a controller that has none."""
        self.sending = {}
        if epoch not in ("", self.epoch):
            self.epoch, self.owed = epoch, dict(self.totals)

    def forget(self, share: Share) -> None:
        """Remove a share that does not exist any more."""
        for rows in (self.owed, self.totals):
            rows.pop(share, None)

    def note_absent(self, absent: set[Share]) -> None:
        """Record which shares are absent; a share that was also absent the last time is removed."""
        for share in absent & self._absent:
            self.forget(share)
        self._absent = absent
