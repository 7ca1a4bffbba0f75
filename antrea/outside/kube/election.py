"""Which of several replicas leads: a pure state machine over the observed contents of a Lease and the times of observation.

As client-go's: a lease is free when no change of it was *observed* for its whole term, by one's own clock. What the
holder wrote about time is never compared with a clock, so clocks that differ or jump do no harm; they may only run at
slightly different speeds. A leader counts its own, shorter term from before it asked to renew.
parity: k8s.io/client-go/tools/leaderelection
"""

from __future__ import annotations

import math

import msgspec


class Terms(msgspec.Struct, frozen=True):
    """Seconds. `lead` of one clock must be less than `lease` of any other: 50 % faster is the worst that is borne."""

    lease: float = 3.0
    """After its last change was seen, a lease is free."""
    lead: float = 2.0
    """Seconds for which a leader leads, from the beginning of its last successful renewal."""
    renew: float = 0.6
    """Between the beginnings of renewals."""


class ObservedLease(msgspec.Struct, frozen=True):
    """The Lease as kube-apiserver returned it; all empty: there is none."""

    holder: str = ""
    address: str = ""
    """Where the holder serves, host:port."""
    version: str = ""
    """Version of the object; a write names it, and is refused if it is outdated."""
    seconds: float = 0.0
    """The holder's own term."""
    transitions: int = 0


class Election:
    """One replica's view; `now` is always a clock of its own that never goes back."""

    def __init__(self, me: str, terms: Terms) -> None:
        self.me = me
        self.terms = terms
        self.seen: ObservedLease | None = None
        """None: nothing was received yet."""
        self.outdated = True
        """Whether the lease may have changed by our own hand since it was seen: it has to be read before a write."""
        self.begins = -math.inf
        """Not before this does it lead."""
        self.ends = -math.inf
        """When this replica stops leading unless it renews."""
        self._making = False
        """It has tried to make the lease, and may have."""
        self._changed = -math.inf
        self._tried = -math.inf

    def observe(self, seen: ObservedLease, now: float) -> None:
        """Take a version of the Lease; one older than the last is ignored."""
        before = self.seen
        if before is not None and _older(seen.version, before.version):
            return
        if self.outdated and before is not None and seen == before:
            return
        self.outdated = False
        if seen != before:
            self.seen, self._changed = seen, now
        if seen.holder != self.me:
            self.ends = -math.inf
            self._making = self._making and not seen.version

    def read(self, seen: ObservedLease, now: float) -> None:
        """Take an answer to a request that was sent after the last write had ended; else as `see`."""
        self.outdated = False
        self.observe(seen, now)

    def free(self, now: float) -> bool:
        """Whether this replica may write itself into the lease: it is gone, released, ours, or its holder was silent for a term."""
        if self.seen is None:
            return False
        if not self.seen.version or self.seen.holder in ("", self.me):
            return True
        return now >= self._changed + max(self.terms.lease, self.seen.seconds)

    def due(self) -> float:
        """When to write next, if the lease is free then; not before it was read once."""
        again = self._tried + self.terms.renew
        if self.seen is None:
            return math.inf
        if self.free(-math.inf):
            return again
        return max(again, self._changed + max(self.terms.lease, self.seen.seconds))

    def tries(self, now: float) -> None:
        """An attempt begins."""
        self._tried = now

    def writes(self) -> None:
        """A write begins of what was seen last."""
        if self.seen is not None and not self.seen.version:
            self._making = True

    def wrote(self, began: float, now: float) -> None:
        """The write that began then came through: this replica leads.

        If it made the lease, it leads a term from now: the lease may have been another's, which has not received yet that it was
        deleted, and perhaps no other replica observed it.
        """
        self.outdated = True
        self.ends = began + self.terms.lead
        if self._making:
            self._making, self.begins = False, now + self.terms.lease

    def failed(self) -> None:
        """The write was refused, or its outcome is unknown."""
        self.outdated = True

    def resign(self) -> None:
        """Stop leading at once, before the lease is released."""
        self.ends = -math.inf

    def leads(self, now: float) -> bool:
        """Whether this replica may act as the leader at this moment."""
        return self.begins <= now < self.ends

    def leader(self, now: float) -> str:
        """Where the leader serves; empty while there is none that is known to be alive."""
        if self.seen is None or not self.seen.holder or (self.seen.holder == self.me and not self.leads(now)):
            return ""
        return self.seen.address if now < self._changed + max(self.terms.lease, self.seen.seconds) else ""


def _older(first: str, other: str) -> bool:
    """Compare two resourceVersions of one object, which are growing numbers. An object that was deleted has none, and counts as newer."""
    return first.isdecimal() and other.isdecimal() and int(first) < int(other)
