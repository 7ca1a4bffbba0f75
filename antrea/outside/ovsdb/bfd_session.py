"""Whether the switch at the other end of a BFD session is up, by the session's columns in OVSDB.

Source: RFC 5880, 6.8.6 and 6.8.18; ovs-vswitchd.conf.db(5), bfd_status.
"""

from __future__ import annotations

import msgspec

from antrea.outside.gossip.suspicion import Timing

STEADY_SECONDS = 2.0
"""A session is up once it has been so long: OVS sends once a second until both ends are up, so that one that has just
come up may miss its first packets and go down once."""
ASIDE_SECONDS = Timing().switch
"""After which a Node whose switch is down is set aside: it is up again when the session is, not before."""
DOUBT_SECONDS = 4.0
"""How long a session may take to come up while packets arrive: three packets at one a second, and one lost."""
SIGNALED = "Neighbor Signaled Session Down"


class BfdStatus(msgspec.Struct, frozen=True):
    """Status from the column bfd_status: states are down, init and up."""

    state: str
    remote: str = "down"
    """The last diagnostic of the other end, since this one was up."""
    diagnostic: str = ""

    @property
    def was_received(self) -> bool:
        """Whether a packet came since the session went down, or was what took it down."""
        return self.state != "down" or self.remote in ("init", "up") or self.diagnostic == SIGNALED


class BfdSession:
    """Unknown before it is up once. Then silence counts as down at once, and a session that receives packets again is not down.

    A few packets lost in a row take a session down for seconds, because both ends begin anew at one packet a second. So
    while it comes up again the state is unknown, unless that takes too long (packets go one way only), or the other end had
    been silent for as long as it takes to set it aside.
    """

    def __init__(self) -> None:
        self.word: bool | None = None
        """Whether the switch is up; None: unknown."""
        self.due: float | None = None
        """When to look again though nothing has changed."""
        self._known = False
        self._up = float("inf")
        """Since when the session has been up."""
        self._fell = 0.0
        """When the word became False."""
        self._doubt = 0.0
        """When it became None, or the session was last up."""

    def update(self, status: BfdStatus, now: float) -> None:
        """Set `word` and `due`; `now` in seconds, of any steady clock."""
        self.due = None
        if status.state == "up":
            self._up, self._doubt = min(self._up, now), now
            if now >= self._up + STEADY_SECONDS:
                self.word, self._known = True, True
                return
            self.due = self._up + STEADY_SECONDS
        else:
            self._up = float("inf")
        if self._known:
            self._weigh(status, now)

    def _weigh(self, status: BfdStatus, now: float) -> None:
        """The word of a session that was up before, and is not, or not for long."""
        if not status.was_received:
            if self.word is not False:
                self.word, self._fell = False, now
        elif self.word or (self.word is False and now < self._fell + ASIDE_SECONDS):
            self.word, self._doubt = None, now
        if self.word is None and status.state != "up":
            if now < self._doubt + DOUBT_SECONDS:
                self.due = self._doubt + DOUBT_SECONDS
            else:
                self.word, self._fell = False, float("-inf")
