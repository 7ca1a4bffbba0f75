"""What receives a packet exists before what sends it there: the order of puts and drops of one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antrea.engine.entry import REPORT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Slot(NamedTuple):
    """When an entry's turn is: urgent first, then pass by pass, puts by rank, then drops in reverse."""

    late: bool
    turn: int
    drop: bool
    weight: int
    """The rank of a put, minus the rank of a drop."""

    @property
    def rank(self) -> int:
        return -self.weight if self.drop else self.weight


class Order:
    """Counts what is on its way, per pass and rank; a pass is open until all its differences are known."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._counts: dict[int, dict[tuple[bool, int], int]] = {}
        self._turn = 0
        self._closed = 0

    def open(self) -> int:
        self._turn += 1
        return self._turn

    def close(self) -> None:
        self._closed = self._turn
        self._wake()

    @property
    def turn(self) -> int:
        return self._turn

    def add(self, slot: Slot) -> None:
        _, turn, drop, weight = slot
        rank = -weight if drop else weight
        if rank < REPORT:
            counts = self._counts.get(turn)
            if counts is None:
                counts = self._counts[turn] = {}
            counts[drop, rank] = counts.get((drop, rank), 0) + 1

    def done(self, slot: Slot) -> None:
        _, turn, drop, weight = slot
        rank = -weight if drop else weight
        if rank >= REPORT:
            return
        counts, place = self._counts[turn], (drop, rank)
        left = counts[place] - 1
        if left:
            counts[place] = left
            return
        del counts[place]
        if not counts:
            del self._counts[turn]
        self._wake()

    def free(self, slot: Slot, taken: Mapping[Slot, int]) -> bool:
        """Has everything that must go before `slot` gone, or is it among the `taken` of the same batch?"""
        if not self.closed(slot):
            return False
        for (drop, rank), count in self._counts.get(slot.turn, {}).items():
            if slot.drop:  # what it stood for may stand in another entry of its rank from now on
                before = rank > slot.rank or (rank == slot.rank and not drop)
            else:
                before = rank < slot.rank and not drop
            if before and count > taken.get(Slot(slot.late, slot.turn, drop, -rank if drop else rank), 0):
                return False
        return True

    @property
    def still(self) -> bool:
        """Are all differences of all passes known?"""
        return self._turn == self._closed

    def closed(self, slot: Slot) -> bool:
        """Are all differences of its pass known?"""
        return slot.turn <= self._closed

    @property
    def empty(self) -> bool:
        return not self._counts
