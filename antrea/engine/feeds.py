"""Which feeds have listed their kind, and which have not for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.facts.fact import Fact


class Feeds:
    """A kind counts as synced once a pass has taken in the rows that its feed wrote before saying so."""

    def __init__(self) -> None:
        self.synced: set[type[Fact]] = set()
        self.marked: set[type[Fact]] = set()
        self._settling: set[type[Fact]] = set()
        """Marks that a pass has taken; it pauses, so that others look meanwhile."""
        self._since: dict[type[Fact], float] = {}
        self.sources: dict[type[Fact], str] = {}
        """Sources of the rows of a kind in the words of a user, such as "namespaces"."""
        self.refusals: dict[type[Fact], str] = {}
        """The server's words where it refuses to send what the rows of a kind are read from: rights are missing."""

    def has(self, kind: type[Fact]) -> bool:
        """Whether the feed of `kind` has listed, seen by a pass or not."""
        return kind in self.marked or kind in self._settling or kind in self.synced

    def mark(self, kind: type[Fact]) -> None:
        self.marked.add(kind)

    def lost(self, kind: type[Fact]) -> None:
        for kinds in (self.marked, self._settling, self.synced):
            kinds.discard(kind)
        self._since.setdefault(kind, -1.0)

    def take_marks(self) -> set[type[Fact]]:
        self._settling, self.marked = self.marked, set()
        return self._settling

    def settle(self, marks: set[type[Fact]]) -> None:
        self.synced |= marks
        self._settling = set()
        for kind in marks:
            self._since.pop(kind, None)

    def refused(self) -> dict[str, str]:
        """The server's words by what it refuses to send."""
        return {self.sources.get(kind, kind.__name__): why for kind, why in self.refusals.items()}

    def overdue(self, kinds: Iterable[type[Fact]], now: float, patience: float) -> list[type[Fact]]:
        """Return those of `kinds`, and of lost ones, that are unsynced since at least `patience` seconds before `now`, by name.

        The time runs from the first call that saw the kind unsynced, so call it regularly.
        """
        late = []
        for kind in sorted({*kinds, *self._since} - self.synced, key=lambda k: k.__name__):
            if self._since.get(kind, -1.0) < 0:
                self._since[kind] = now
            if now - self._since[kind] >= patience:
                late.append(kind)
        return late
