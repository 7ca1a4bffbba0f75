"""One sink's side of the ledger: what it confirmed, what is in doubt, what it has to do next."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from antrea.engine.entry import REPORT
from antrea.engine.order import Order, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from antrea.engine.entry import Ref, Sink
    from antrea.errors import Refused

CHUNK = 1000
"""Entries that a replay takes in one go: some 0.3 ms."""


class Retry:
    """Errands that failed together: not before `due`."""

    __slots__ = ("due", "errands", "refused")

    def __init__(self, due: float, refused: Refused | None) -> None:
        self.due = due
        self.refused = refused
        """None: the outcome is unknown, and others of its pass wait for it; a known no lets them go on."""
        self.errands: dict[Ref, tuple[Slot, Any]] = {}


class Batch:
    """What is handed to the sink in one call."""

    def __init__(self) -> None:
        self.put: list[Any] = []
        self.drop: list[Any] = []
        self.flight: dict[Ref, tuple[Slot, Any]] = {}
        self.doubted: set[Ref] = set()
        """Those whose outcome was unknown before."""
        self.retry = False


class Lane:
    """An errand is (slot, value): put that value, or drop it. A value in flight is in doubt until the sink answers."""

    def __init__(self, order: Order, touched: Collection[Ref], sink: Sink | None) -> None:
        self.sink = sink
        self.confirmed: dict[Ref, Any] = {}
        self.doubtful: dict[Ref, Any] = {}
        self.errands: dict[Ref, Slot | Retry] = {}
        """Where each errand lies: under its slot in `fresh`, or in a Retry."""
        self.retries: list[Retry] = []
        self.noes: dict[Ref, int] = {}
        """How many times in a row the sink said no to the errand of a ref."""
        self.whole: bool = getattr(sink, "whole", False)
        """All that may go goes in one call, however much it is."""
        self._fresh: dict[Slot, dict[Ref, Any]] = {}
        self._order = order
        self._touched = touched

    # what a pass says

    def stands(self, ref: Ref, target: Any) -> bool:
        """Is `target` (None: nothing) what the sink confirmed?"""
        return ref not in self.doubtful and self.confirmed.get(ref) == target

    def last(self, ref: Ref) -> Any:
        """What may stand under `ref`."""
        return self.doubtful.get(ref, self.confirmed.get(ref))

    def place(self, ref: Ref, value: Any, slot: Slot) -> None:
        """The errand for `ref` from now on."""
        if ref in self.errands:
            self.discard(ref)
        self.errands[ref] = slot
        rows = self._fresh.get(slot)
        if rows is None:
            rows = self._fresh[slot] = {}
        rows[ref] = value
        self._order.add(slot)

    def discard(self, ref: Ref) -> None:
        """No errand for `ref`, for now."""
        place = self.errands.pop(ref, None)
        if isinstance(place, Retry):
            slot, _ = self._unshelve(place, ref)
            if place.refused is None:
                self._order.done(slot)
        elif place is not None:
            self._take(place, ref)
            self._order.done(place)

    def forget(self, ref: Ref) -> None:
        """Withdrawn, but what stands outside is left as it is."""
        self.discard(ref)
        self.noes.pop(ref, None)
        self.confirmed.pop(ref, None)
        self.doubtful.pop(ref, None)

    def lose(self) -> None:
        """The sink no longer has what it confirmed, or perhaps it has: all of it is in doubt."""
        self.doubtful = self.confirmed | self.doubtful

    # what the sink is asked

    def fill(self, batch: Batch, now: float, most: int, retry_most: int) -> Iterator[None]:
        """The next batch, with a pause after each entry: urgent ones alone, then what failed and is due, then bulk.

        That of a sink which takes all at once has no limit, and no pause: a pass must not change what is left of it.
        """
        slots = sorted(self._fresh)
        if self.whole:
            self._take_all(batch, slots)
            slots = []
        yield from self._take_fresh(batch, [slot for slot in slots if not slot.late], most)
        if not batch.flight:
            yield from self._take_due(batch, now, retry_most)
        if not batch.flight:
            yield from self._take_fresh(batch, [slot for slot in slots if slot.late], most)

    def pick_all(self, batch: Batch) -> Iterator[None]:
        """Everything that should stand, for a replay: fills `batch`, with pauses."""
        for slot in [slot for slot in self._fresh if not slot.drop and self._order.closed(slot)]:
            while (rows := self._fresh.get(slot)) is not None:
                self._fly_all(batch, slot, self._some(slot, rows))
                yield
        for ref in [*self.errands]:
            if (place := self.errands.get(ref)) is not None and not _known_no(place):
                slot, _ = self._errand(ref, place)
                if not slot.drop and self._order.closed(slot):
                    self._lift(batch, ref)
            yield
        for ref in [*self.confirmed]:
            if ref in self.confirmed and ref not in self.errands and ref not in batch.flight:
                value = self.confirmed[ref]
                slot = Slot(True, 0, False, value.rank)
                self._order.add(slot)
                self._fly(batch, ref, slot, value)
            yield
        batch.put.sort(key=lambda entry: entry.rank)

    def lowest_rank(self) -> int:
        """Where the lane comes in the order of replays: its smallest rank, REPORT if it has nothing to put."""
        fresh = (slot.rank for slot in self._fresh if not slot.drop)
        return min(fresh, default=REPORT)

    def next_due(self) -> float | None:
        return min((retry.due for retry in self.retries), default=None)

    # what the sink answered

    def confirm(self, batch: Batch) -> Iterator[Ref]:
        """All of it stands. Yields every ref, so that the caller can pause."""
        for ref, (slot, value) in batch.flight.items():
            if self.noes:
                self.noes.pop(ref, None)
            if self.doubtful.pop(ref, None) is not None:  # else forgotten meanwhile
                self._land(ref, None if slot.drop else value)
            newer = self.errands.get(ref)
            if newer is not None:
                newer_slot, newer_value = self._errand(ref, newer)
                if newer_slot.drop == slot.drop and newer_value == value:
                    self.discard(ref)
            self._order.done(slot)
            yield ref

    def doubt(self, batch: Batch, due: float) -> Iterator[Ref]:
        """Nobody knows what became of it: try again from `due` on."""
        retry = Retry(due, None)
        for ref, (slot, value) in batch.flight.items():
            if self._superseded(ref):
                self._order.done(slot)
            else:
                self._later(retry, ref, slot, value)
            yield ref
        if retry.errands:
            self.retries.append(retry)

    def refuse(self, batch: Batch, refs: Collection[Ref], due: Callable[[int], float], why: Refused) -> None:
        """A known no to `refs`; the others go again at once, for nobody knows whether the sink took them.

        `due(tries)` says when to ask again after so many noes to one of them.
        """
        retry = Retry(due(max(self.noes.get(ref, 0) for ref in refs)), why)
        for ref, (slot, value) in batch.flight.items():
            superseded = self._superseded(ref)
            if ref in refs:
                self.noes[ref] = self.noes.get(ref, 0) + 1
                if ref not in batch.doubted:
                    self.doubtful.pop(ref, None)
                self._order.done(slot)
                if not superseded:
                    self._later(retry, ref, slot, value)
            elif superseded:
                self._order.done(slot)
            else:
                self.errands[ref] = slot
                self._fresh.setdefault(slot, {})[ref] = value
        if retry.errands:
            self.retries.append(retry)

    def outstanding(self, category: int) -> bool:
        """Is an entry of `category` still to be put or dropped (known noes aside)?"""
        return any(
            self._errand(ref, place)[1].category == category
            for ref, place in self.errands.items()
            if not _known_no(place)
        )

    def refusal(self, ref: Ref) -> Refused | None:
        """The known no that `ref` waits after, if it does."""
        place = self.errands.get(ref)
        return place.refused if isinstance(place, Retry) else None

    @property
    def quiet(self) -> bool:
        """Nothing to do now or later, known noes aside."""
        return not self._fresh and all(retry.refused is not None for retry in self.retries)

    def _land(self, ref: Ref, value: Any) -> None:
        if value is None:
            self.confirmed.pop(ref, None)
        else:
            self.confirmed[ref] = value

    def _take(self, slot: Slot, ref: Ref) -> Any:
        rows = self._fresh[slot]
        value = rows.pop(ref)
        if not rows:
            del self._fresh[slot]
        return value

    def _unshelve(self, retry: Retry, ref: Ref) -> tuple[Slot, Any]:
        found = retry.errands.pop(ref)
        if not retry.errands:
            self.retries.remove(retry)
        return found

    def _superseded(self, ref: Ref) -> bool:
        return ref in self.errands or ref in self._touched or ref not in self.doubtful

    def _later(self, retry: Retry, ref: Ref, slot: Slot, value: Any) -> None:
        retry.errands[ref] = (slot, value)
        self.errands[ref] = retry

    def _errand(self, ref: Ref, place: Slot | Retry) -> tuple[Slot, Any]:
        return place.errands[ref] if isinstance(place, Retry) else (place, self._fresh[place][ref])

    def _take_fresh(self, batch: Batch, slots: list[Slot], most: int) -> Iterator[None]:
        taken: dict[Slot, int] = {}
        for slot in slots:
            if not self._order.free(slot, taken):
                continue
            for ref in list(islice(self._fresh.get(slot, ()), most - len(batch.flight))):
                if self.errands.get(ref) == slot:  # else a pass has placed it anew meanwhile
                    taken[slot] = taken.get(slot, 0) + 1
                    self._lift(batch, ref)
                yield

    def _take_all(self, batch: Batch, slots: list[Slot]) -> None:
        """Nothing while a pass compares: it moves errands from one place to another."""
        taken: dict[Slot, int] = {}
        for slot in slots if self._order.still else ():
            if self._order.free(slot, taken):
                rows = self._fresh.pop(slot)
                taken[slot] = len(rows)
                self._fly_all(batch, slot, rows)

    def _some(self, slot: Slot, rows: dict[Ref, Any]) -> dict[Ref, Any]:
        """The first of `rows`, which are all that is fresh under `slot`, taken from there."""
        if len(rows) <= CHUNK:
            return self._fresh.pop(slot)
        some = dict(islice(rows.items(), CHUNK))
        for ref in some:
            del rows[ref]
        return some

    def _take_due(self, batch: Batch, now: float, most: int) -> Iterator[None]:
        batch.retry = True
        due = [(slot, ref) for r in self.retries if r.due <= now for ref, (slot, _) in r.errands.items()]
        for _, ref in sorted(due, key=lambda pair: pair[0])[:most]:
            if isinstance(self.errands.get(ref), Retry):
                self._lift(batch, ref)
            yield
        batch.retry = bool(batch.flight)

    def _lift(self, batch: Batch, ref: Ref) -> None:
        place = self.errands.pop(ref)
        if isinstance(place, Retry):
            slot, value = self._unshelve(place, ref)
            if place.refused is not None:
                self._order.add(slot)
        else:
            slot, value = place, self._take(place, ref)
        self._fly(batch, ref, slot, value)  # it stays on its way while it is in flight

    def _fly_all(self, batch: Batch, slot: Slot, rows: dict[Ref, Any]) -> None:
        """As `_lift` with each row of this slot, but sooner done: nobody else runs meanwhile."""
        if len(rows) == len(self.errands):
            self.errands.clear()
        else:
            for ref in rows:
                del self.errands[ref]
        batch.flight.update((ref, (slot, value)) for ref, value in rows.items())
        (batch.drop if slot.drop else batch.put).extend(rows.values())
        batch.doubted |= rows.keys() & self.doubtful.keys()
        self.doubtful.update(rows)

    def _fly(self, batch: Batch, ref: Ref, slot: Slot, value: Any) -> None:
        batch.flight[ref] = (slot, value)
        (batch.drop if slot.drop else batch.put).append(value)
        if ref in self.doubtful:
            batch.doubted.add(ref)
        self.doubtful[ref] = value


def _known_no(place: Slot | Retry) -> bool:
    return isinstance(place, Retry) and place.refused is not None
