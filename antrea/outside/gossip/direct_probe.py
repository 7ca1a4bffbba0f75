"""Members that are asked out of turn, urgently and by all ways, and do not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.outside.gossip.peer import PeerState
    from antrea.outside.gossip.suspicion import Timing


class _DirectProbe:
    __slots__ = ("next", "since")

    def __init__(self, now: float) -> None:
        self.since = self.next = now


class DirectProbes:
    """Each is open until its member answers, or is dead."""

    def __init__(self, timing: Timing, now: float) -> None:
        self._timing = timing
        self._looked = now
        self._open: dict[str, _DirectProbe] = {}

    def ask(self, now: float, names: Iterable[str]) -> None:
        """All of them; whose question is open has been asked."""
        for name in names:
            self._open.setdefault(name, _DirectProbe(now))

    def update(self, now: float, rows: Mapping[str, PeerState]) -> list[str]:
        """Drop answered probes, and return the members to probe again."""
        timing = self._timing
        # what waits to be read after a pause of this process is no silence
        late = max(now - self._looked - timing.urgent, 0.0)
        self._looked = now
        due = []
        for name, question in list(self._open.items()):
            row = rows.get(name)
            if row is None or not row.lives or row.heard > question.since:
                del self._open[name]
                continue
            question.since += late
            if now >= question.next and now - question.since < timing.alone:
                question.next = now + timing.urgent
                due.append(name)
        return due

    def is_open(self, name: str) -> bool:
        """Whether it has not answered so far."""
        return name in self._open

    def silent(self, now: float, seconds: float) -> frozenset[str]:
        """Return the members that have not answered for so many seconds."""
        return frozenset(name for name, question in self._open.items() if now - question.since >= seconds)
