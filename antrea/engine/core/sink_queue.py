"""Pending changes of one sink: what goes to it next, and what its answers mean.

An entry goes through these states: pending in a slot, in flight, then confirmed, in doubt or refused. A value in flight
is in doubt until the sink answers; what is in doubt or refused lies in a Retry until it is due.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from antrea.engine.core.order import BY_ORDER, BY_ORDER_IN_ONE_CALL, Order, Slot
from antrea.engine.core.place import IN_FLIGHT, TOUCHED, Cell, Table, discard_if_empty
from antrea.engine.core.time_slice import SLICE
from antrea.engine.entry import REPORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.engine.core.ledger import Ledger


class Retry:
    """Changes that failed together: not to be tried before `due`."""

    __slots__ = ("changes", "due", "refused")

    def __init__(self, due: float, refused: Any) -> None:
        self.due: float = due
        self.refused: Any = refused
        """None if the outcome is unknown: others of its pass wait for it then; a refusal lets them continue."""
        self.changes: dict[Cell, tuple[Slot, Any]] = {}


class Batch:
    """The changes of one call of the sink."""

    __slots__ = ("cells", "doubted", "drop", "lost", "put", "retry", "slots", "values")

    def __init__(self) -> None:
        self.put: list[Any] = []
        self.drop: list[Any] = []
        self.cells: list[Cell] = []
        self.slots: list[Slot] = []
        self.values: list[Any] = []
        self.doubted: set[Cell] = set()
        """Cells whose outcome was unknown before."""
        self.lost: bool = False
        """The sink may have lost what it was given, whatever it answered or will answer."""
        self.retry: bool = False


class SinkQueue:
    """A pending change is a cell with a value under a slot."""

    def __init__(self, order: Order, sink: Any) -> None:
        self.sink: Any = sink
        self.tables: list[Table] = []
        self.retries: list[Retry] = []
        self.refusals: dict[Cell, int] = {}
        """How many times in a row the sink refused the change of a cell."""
        self.whole: bool = bool(getattr(sink, "whole", False))
        """All changes that may go, go in one call."""
        self.in_flight: Batch | None = None
        self.fresh: dict[Slot, dict[Cell, Any]] = {}
        self._order = order

    # what a pass finds

    def place(self, cell: Cell, value: Any, slot: Slot) -> None:
        """Replace the pending change of `cell`."""
        if cell.pending is not None:
            self.discard(cell)
        cell.pending = slot
        rows = self.fresh.get(slot)
        if rows is None:
            rows = self.fresh[slot] = {}
        rows[cell] = value
        if slot.left:
            slot.left += 1
        else:
            self._order.add(slot)

    def discard(self, cell: Cell) -> None:
        """Remove the pending change of `cell`, if it has one."""
        where = cell.pending
        if where is None:
            return
        cell.pending = None
        if isinstance(where, Retry):
            slot, _ = self._take_retry(where, cell)
            if where.refused is None:
                self._order.done(slot)
        else:
            self._take_value(where, cell)
            self._order.done(where)

    def forget(self, cell: Cell) -> None:
        """Withdraw `cell`, but leave what exists outside as it is."""
        self.discard(cell)
        if self.refusals:
            self.refusals.pop(cell, None)
        cell.value = cell.doubt = None

    def lose(self) -> None:
        """The sink may have lost what it confirmed: all of it is in doubt, also what it refuses to change just now."""
        if self.in_flight is not None:
            self.in_flight.lost = True
        for table in self.tables:
            for cell in table.rows.values():
                assert isinstance(cell, Cell)
                if cell.doubt is None:
                    cell.doubt = cell.value

    # batches

    def fill(self, batch: Batch, now: float, most: int, retry_most: int) -> Iterator[None]:
        """Fill the next batch: urgent changes alone, then failed ones that are due, then bulk.

        For a sink that takes all at once there is no limit and no pause: a pass must not change what is left of it.
        Passes that end during a pause have their turn in the next batch: an entry has one place in a batch.
        """
        by = BY_ORDER_IN_ONE_CALL if self.whole else BY_ORDER
        slots = sorted(filter(self._order.closed, self.fresh), key=by)
        if self.whole:
            self._take_all(batch, slots)
            slots = []
        yield from self._take_fresh(batch, [slot for slot in slots if not slot.bulk], most)
        if not batch.cells:
            yield from self._take_due(batch, now, retry_most)
        if not batch.cells:
            yield from self._take_fresh(batch, [slot for slot in slots if slot.bulk], most)

    def fill_replay(self, batch: Batch) -> Iterator[None]:
        """Fill `batch` with everything that should exist, by rank."""
        ranks = {slot.rank for slot in self.fresh if not slot.drop}
        ranks |= {slot.rank for retry in self.retries for slot, _ in retry.changes.values() if not slot.drop}
        confirmed: dict[int, list[Cell]] = {}
        for table in self.tables:
            for row in [*table.rows.values()]:
                if row.value is not None:
                    assert isinstance(row, Cell)
                    confirmed.setdefault(row.value.rank, []).append(row)
                if SLICE.over():
                    yield
        for rank in sorted(ranks | confirmed.keys()):
            yield from self._replay_fresh(batch, rank)
            yield from self._replay_retries(batch, rank)
            yield from self._replay_confirmed(batch, confirmed.get(rank, []))

    def _replay_fresh(self, batch: Batch, rank: int) -> Iterator[None]:
        closed = self._order.closed
        for slot in [slot for slot in self.fresh if not slot.drop and slot.rank == rank and closed(slot)]:
            while (rows := self.fresh.get(slot)) is not None:
                some = [cell for cell in rows if not cell.flags & IN_FLIGHT]
                if not some:
                    break
                for cell in some:
                    if (
                        cell.pending is slot and not cell.flags & IN_FLIGHT
                    ):  # else a pass has placed it anew meanwhile
                        self._fly(batch, cell, slot, self._take_value(slot, cell))
                    if SLICE.over():
                        yield

    def _replay_retries(self, batch: Batch, rank: int) -> Iterator[None]:
        for retry in [retry for retry in self.retries if retry.refused is None]:
            for cell in [*retry.changes]:
                change = retry.changes.get(cell)
                if change is not None:
                    slot = change[0]
                    if not slot.drop and slot.rank == rank and self._order.closed(slot):
                        self._lift(batch, cell)
                if SLICE.over():
                    yield

    def _replay_confirmed(self, batch: Batch, cells: list[Cell]) -> Iterator[None]:
        for cell in cells:
            value = cell.value
            if value is not None and cell.pending is None and not cell.flags & IN_FLIGHT:
                slot = self._order.replay(value.rank)
                self._order.add(slot)
                self._fly(batch, cell, slot, value)
            if SLICE.over():
                yield

    def lowest_rank(self) -> int:
        """Return the smallest rank to be put, which places the sink in the order of replays; REPORT if there is none."""
        return min((slot.rank for slot in self.fresh if not slot.drop), default=REPORT)

    def next_due(self) -> float | None:
        """Return when the next retry is due."""
        return min((retry.due for retry in self.retries), default=None)

    # answers of the sink

    def confirm(self, batch: Batch, ledger: Ledger) -> Iterator[None]:
        """Record that all of `batch` is applied: jobs that wait for it continue, where no newer change is pending."""
        order, refusals = self._order, self.refusals
        for cell, slot, value in zip(batch.cells, batch.slots, batch.values, strict=True):
            cell.flags &= ~IN_FLIGHT
            if refusals:
                refusals.pop(cell, None)
            if cell.doubt is not None:  # else forgotten meanwhile
                cell.value = None if slot.drop else value
                cell.doubt = cell.value if batch.lost else None
            if cell.pending is not None:
                newer_slot, newer_value = self._pending(cell, cell.pending)
                if newer_slot.drop == slot.drop and newer_value == value:
                    self.discard(cell)
            if slot.left > 1:
                slot.left -= 1
            else:
                order.done(slot)
            if not cell.flags and cell.pending is None:
                ledger.resolve(cell)
            if SLICE.over():
                yield
        self.in_flight = None

    def doubt(self, batch: Batch, due: float) -> Iterator[None]:
        """The outcome of `batch` is unknown: try again from `due` on."""
        retry = Retry(due, None)
        for cell, slot, value in zip(batch.cells, batch.slots, batch.values, strict=True):
            cell.flags &= ~IN_FLIGHT
            if self._superseded(cell):
                self._order.done(slot)
                discard_if_empty(cell)
            else:
                self._later(retry, cell, slot, value)
            if SLICE.over():
                yield
        self.in_flight = None
        if retry.changes:
            self.retries.append(retry)

    def refuse(self, batch: Batch, cells: set[Cell], due: Callable[[int], float], why: Any) -> None:
        """The sink refused `cells`; the others go again at once, since it is unknown whether the sink took them.

        `due(tries)` returns when to try again after so many refusals.
        """
        self.in_flight = None
        retry = Retry(due(max([self.refusals.get(cell, 0) for cell in cells])), why)
        for cell, slot, value in zip(batch.cells, batch.slots, batch.values, strict=True):
            cell.flags &= ~IN_FLIGHT
            superseded = self._superseded(cell)
            if cell.doubt is None:  # withdrawn meanwhile
                self._order.done(slot)
                discard_if_empty(cell)
            elif cell in cells:
                self.refusals[cell] = self.refusals.get(cell, 0) + 1
                if cell not in batch.doubted and not batch.lost:
                    cell.doubt = None
                self._order.done(slot)
                if not superseded:
                    self._later(retry, cell, slot, value)
            elif superseded:
                self._order.done(slot)
            else:
                cell.pending = slot
                self.fresh.setdefault(slot, {})[cell] = value
        if retry.changes:
            self.retries.append(retry)

    # questions

    def outstanding(self, category: int) -> bool:
        """Whether an entry of `category` is still to be put or dropped, refused ones aside."""
        for rows in self.fresh.values():
            if any(value.category == category for value in rows.values()):
                return True
        for retry in self.retries:
            if retry.refused is None and any(
                value.category == category for _, value in retry.changes.values()
            ):
                return True
        return False

    def refusal(self, cell: Cell) -> Any:
        """Return the refusal after which `cell` waits, or None."""
        return cell.pending.refused if isinstance(cell.pending, Retry) else None

    @property
    def quiet(self) -> bool:
        """Whether nothing is pending, refused changes aside."""
        return not self.fresh and all(retry.refused is not None for retry in self.retries)

    def under_way(self) -> Iterator[Cell]:
        """All cells with a pending change, or in flight."""
        for rows in self.fresh.values():
            yield from rows
        for retry in self.retries:
            yield from retry.changes
        if self.in_flight is not None:
            yield from self.in_flight.cells

    # moves between the containers

    def _take_value(self, slot: Slot, cell: Cell) -> Any:
        rows = self.fresh[slot]
        value = rows.pop(cell)
        if not rows:
            del self.fresh[slot]
        return value

    def _take_retry(self, retry: Retry, cell: Cell) -> tuple[Slot, Any]:
        change = retry.changes.pop(cell)
        if not retry.changes and retry in self.retries:
            self.retries.remove(retry)
        return change

    def _superseded(self, cell: Cell) -> bool:
        return cell.pending is not None or bool(cell.flags & TOUCHED) or cell.doubt is None

    def _later(self, retry: Retry, cell: Cell, slot: Slot, value: Any) -> None:
        retry.changes[cell] = (slot, value)
        cell.pending = retry

    def _pending(self, cell: Cell, where: Any) -> tuple[Slot, Any]:
        if isinstance(where, Retry):
            return where.changes[cell]
        return (where, self.fresh[where][cell])

    def _take_fresh(self, batch: Batch, slots: list[Slot], most: int) -> Iterator[None]:
        taken: dict[Slot, int] = {}
        for slot in slots:
            if not self._order.free(slot, taken):
                continue
            rows = self.fresh.get(slot)
            if rows is None:
                continue
            for cell in [*islice(rows, most - len(batch.cells))]:
                if cell.pending is slot:  # else a pass has placed it anew meanwhile
                    taken[slot] = taken.get(slot, 0) + 1
                    self._lift(batch, cell)
                if SLICE.over():
                    yield

    def _take_all(self, batch: Batch, slots: list[Slot]) -> None:
        """Take nothing while a pass compares, since it moves changes between slots."""
        taken: dict[Slot, int] = {}
        for slot in slots if self._order.compared else ():
            if self._order.free(slot, taken):
                rows = self.fresh.pop(slot)
                taken[slot] = len(rows)
                for cell, value in rows.items():
                    self._fly(batch, cell, slot, value)

    def _take_due(self, batch: Batch, now: float, most: int) -> Iterator[None]:
        batch.retry = True
        due = [(slot, cell) for r in self.retries if r.due <= now for cell, (slot, _) in r.changes.items()]
        due.sort(key=lambda pair: pair[0].order)
        for _, cell in due[:most]:
            if isinstance(cell.pending, Retry):
                self._lift(batch, cell)
            if SLICE.over():
                yield
        batch.retry = bool(batch.cells)

    def _lift(self, batch: Batch, cell: Cell) -> None:
        where = cell.pending
        if isinstance(where, Retry):
            slot, value = self._take_retry(where, cell)
            if where.refused is not None:
                self._order.add(slot)
        else:
            slot, value = where, self._take_value(where, cell)
        self._fly(batch, cell, slot, value)

    def _fly(self, batch: Batch, cell: Cell, slot: Slot, value: Any) -> None:
        """Move a change into `batch`; it counts for its slot until the sink has answered."""
        cell.pending = None
        cell.flags |= IN_FLIGHT
        batch.cells.append(cell)
        batch.slots.append(slot)
        batch.values.append(value)
        (batch.drop if slot.drop else batch.put).append(value)
        if cell.doubt is not None:
            batch.doubted.add(cell)
        cell.doubt = value
        self.in_flight = batch
