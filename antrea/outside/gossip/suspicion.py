"""A suspicion, which ends in death unless it is refuted: the more witnesses, the sooner.

Source: Dadgar, Phillips, Currey, "Lifeguard: Local Health Awareness for More Accurate Failure Detection" (2017), 4.3
"""

from __future__ import annotations

import math

import msgspec


class Timing(msgspec.Struct, frozen=True):
    """All times are in seconds. docs/membership.md has what follows from them."""

    period: float = 0.5
    """Between two probes of one observed member; a probe fails after as long."""
    again: float = 0.2
    """Without an answer for so long, a probe goes again, through others and over TCP."""
    observed: int = 3
    """Members that each member probes every period: those that follow it on a ring."""
    relays: int = 3
    suspicion_least: float = 1.25
    """With every witness that can be; longer than a member needs to notice that it is cut off."""
    suspicion_most: float = 3.0
    """With one witness of several that can be."""
    suspicion_sole: float = 2.0
    """With one witness where there can be no other."""
    gossip: float = 0.1
    """Between packets that only carry rumours."""
    fanout: int = 3
    sync: float = 30.0
    """Between exchanges of whole tables."""
    wander: float = 1.0
    """Between probes of a member at random, dead ones, too: what was parted finds together by them."""
    stall: float = 0.4
    """Not having run for so long, this process does not suspect others for missing answers."""
    alone: float = 1.0
    """Without a message for so long, this member is cut off."""
    grace: float = 0.5
    """How long a majority may be short of members that are merely suspect."""
    settle: float = 1.0
    """How long a majority has to last before it counts."""
    answer: float = 0.3
    """How long a member whose switch is down may take to show that it lives."""
    urgent: float = 0.1
    """Between probes of such a member, or of all."""
    doubt: float = 0.4
    """How long most may leave it unanswered that all are asked, until this member holds itself for cut off."""
    blind: float = 0.2
    """The same where a switch is seen no longer: shorter than `answer`, after which the others act."""
    switch: float = 2.0
    """How long a switch may be down whose agent answers."""
    restart: float = 60.0
    """How long an agent may be silent whose switch is up while its kernel refuses connections, or that announced a restart."""
    hung: float = 6.0
    """How long an agent may be silent whose switch is up and whose kernel refuses no connection."""
    lifeless: float = 3.0
    """How long the kernel of a member that announced a restart may be silent."""


class Suspicion:
    """Suspicion of one incarnation of one member."""

    def __init__(self, since: float, possible: int, timing: Timing) -> None:
        """`possible` is how many witnesses there can be."""
        self.since = since
        self._possible = possible
        self._timing = timing
        self.witnesses: set[str] = set()
        self.is_asked = False
        """Before its end the suspect was probed by a member that learned of the suspicion from others."""

    def witness(self, name: str) -> bool:
        """Whether this is one more that counts."""
        if name in self.witnesses or len(self.witnesses) >= max(self._possible, 1):
            return False
        self.witnesses.add(name)
        return True

    def delay(self, seconds: float) -> None:
        """This process did not run for so long."""
        self.since += seconds

    @property
    def ends(self) -> float:
        """When the member counts as dead."""
        timing = self._timing
        if self._possible <= 1:
            return self.since + timing.suspicion_sole
        share = math.log(max(len(self.witnesses), 1)) / math.log(self._possible)
        longest = timing.suspicion_most
        return self.since + longest - (longest - timing.suspicion_least) * min(share, 1.0)
