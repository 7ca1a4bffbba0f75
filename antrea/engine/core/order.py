"""The order of pending changes: urgent first, then pass by pass, puts by rank, then drops in reverse."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from antrea.engine.entry import REPORT

if TYPE_CHECKING:
    from collections.abc import Callable


class Slot:
    """Pending changes of one pass that may go to their sinks at the same time."""

    __slots__ = ("bulk", "drop", "left", "number", "rank", "weight")

    def __init__(self, bulk: bool, number: int, drop: bool, weight: int) -> None:
        self.bulk: bool = bulk
        """Whether the pass was not urgent."""
        self.number: int = number
        """Number of the pass."""
        self.drop: bool = drop
        self.weight: int = weight
        """The rank of a put, minus the rank of a drop."""
        self.rank: int = -weight if drop else weight
        self.left: int = 0
        """Changes that are not confirmed yet."""

    @property
    def order(self) -> tuple[bool, int, bool, int]:
        return (self.bulk, self.number, self.drop, self.weight)

    @property
    def order_in_one_call(self) -> tuple[bool, int, bool, int]:
        """Among all passes that go in one call: what a later pass wants may refer to what an earlier one left pending."""
        return (self.drop, self.weight, self.bulk, self.number)


BY_ORDER = attrgetter("order")
BY_ORDER_IN_ONE_CALL = attrgetter("order_in_one_call")


class Order:
    """Slots that are not done, per pass; a pass is open until all its differences are known."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._slots: dict[int, dict[Slot, None]] = {}
        self._replays: dict[int, Slot] = {}
        self._number: int = 0
        self._closed: int = 0

    def open(self) -> int:
        """Start the comparison of a pass and return its number."""
        self._number += 1
        return self._number

    def close(self) -> None:
        """All differences of the pass are known: its slots may go."""
        self._closed = self._number
        self._wake()

    @property
    def number(self) -> int:
        """Number of the latest pass."""
        return self._number

    def replay(self, rank: int) -> Slot:
        """Return the slot for entries that were applied before any pass."""
        slot = self._replays.get(rank)
        if slot is None:
            slot = self._replays[rank] = Slot(True, 0, False, rank)
        return slot

    def add(self, slot: Slot) -> None:
        """One more change of `slot` is pending."""
        if not slot.left:
            slots = self._slots.get(slot.number)
            if slots is None:
                slots = self._slots[slot.number] = {}
            slots[slot] = None
        slot.left += 1

    def done(self, slot: Slot) -> None:
        """One change of `slot` is confirmed or given up."""
        slot.left -= 1
        if not slot.left:
            slots = self._slots[slot.number]
            del slots[slot]
            if not slots:
                del self._slots[slot.number]
            if slot.rank < REPORT:
                self._wake()

    def free(self, slot: Slot, taken: dict[Slot, int]) -> bool:
        """Whether everything that must go before `slot` is done, or is among the `taken` of the same batch."""
        if slot.number > self._closed:
            return False
        for other in self._slots.get(slot.number, ()):
            rank = other.rank
            if rank >= REPORT:
                continue
            if (
                slot.drop
            ):  # its job may have moved to another entry of the same rank, which has to exist first
                before = rank > slot.rank or (rank == slot.rank and not other.drop)
            else:
                before = rank < slot.rank and not other.drop
            if before and other.left > taken.get(other, 0):
                return False
        return True

    @property
    def compared(self) -> bool:
        """Whether all differences of all passes are known."""
        return self._number == self._closed

    def closed(self, slot: Slot) -> bool:
        """Whether all differences of the pass of `slot` are known."""
        return slot.number <= self._closed

    @property
    def empty(self) -> bool:
        """Whether nothing but reports is pending."""
        return not any(slot.rank < REPORT for slots in self._slots.values() for slot in slots)
