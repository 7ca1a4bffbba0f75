"""Verdict on whether neighbors in a network answer this Node, by the rounds of probes so far.

Others wait for a shorter time than the Node that answers for the addresses there, and come back later: if the gateway is down,
all of them count as silent before that one does, and still do when it no longer does, so that no address moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MISSED, MISSED_AS_OWNER = 2, 4
"""Rounds in which no neighbour may answer before the Node counts as silent."""
BACK, BACK_AS_OWNER = 3, 1
"""Rounds in which any neighbour must answer before it no longer does."""
UNHEARD: Final = 3
"""Rounds in which no neighbour may answer an external IP that was answered before."""
MAX_KNOWN: Final = 4096
"""Answers as external IPs that are kept also of addresses that are elsewhere."""
HOLD_SECONDS, LONGEST_HOLD_SECONDS = 600.0, 3600.0
"""Seconds for which a Node leaves the addresses to others: while it has none of them it cannot find out. Twice as long each
time.
"""


class NetworkVerdict:
    """Verdict on one network."""

    def __init__(self, *, silent: bool) -> None:
        """`silent`: as reported before, perhaps by an earlier agent."""
        self.answers: bool | None = False if silent else None
        """None if no neighbor has answered so far, or the result is open."""
        self.unheard = ""
        """The external IP as which neighbours no longer answer."""
        self.met: set[str] = set()
        """Neighbours that have answered so far."""
        self._missed = self._good = 0
        self._known: set[tuple[str, str]] = set()
        """External IPs, and neighbours that answered the Node as these."""
        self._missed_as: dict[str, int] = {}
        self._hold = HOLD_SECONDS
        self._until = 0.0

    def update(self, probed: Iterable[str], answered: Collection[str], *, as_owner: bool) -> None:
        """Record a round: which neighbors were probed, and which answered."""
        if not answered and self.met.isdisjoint(probed):
            return
        self.met.update(answered)
        self._missed = 0 if answered else self._missed + 1
        self._good = self._good + 1 if answered else 0
        if self._missed >= (MISSED_AS_OWNER if as_owner else MISSED):
            self.answers = False
        elif self._good and (
            self.answers is not False or self._good >= (BACK_AS_OWNER if as_owner else BACK)
        ):
            self.answers = True

    def update_as_owner(self, ip: str, probed: Iterable[str], answered: Collection[str], now: float) -> None:
        """Record a probe as an external IP: which neighbors, of those that answer the Node, were probed, and which answered."""
        if answered:
            self._known |= {(ip, neighbour) for neighbour in answered}
            self._missed_as.pop(ip, None)
            if self.unheard in ("", ip) and now >= self._until:
                self.unheard, self._hold = "", HOLD_SECONDS
            return
        if not any((ip, neighbour) in self._known for neighbour in probed):
            return
        missed = self._missed_as[ip] = self._missed_as.get(ip, 0) + 1
        if missed >= UNHEARD and not self.unheard:
            self.unheard, self._until = ip, now + self._hold
            self._hold = min(2 * self._hold, LONGEST_HOLD_SECONDS)
            self._missed_as.clear()

    def keep_only(self, ips: tuple[str, ...], now: float) -> None:
        """Drop misses of external IPs that this Node no longer answers for; the hold ends by itself."""
        self._missed_as = {ip: missed for ip, missed in self._missed_as.items() if ip in ips}
        if len(self._known) > MAX_KNOWN:
            self._known = {known for known in self._known if known[0] in ips}
        if self.unheard and now >= self._until:
            self.unheard = ""
