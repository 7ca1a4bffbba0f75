"""The rows of all kinds: feeds write them, units read them, and every read is recorded."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from antrea.engine.core.job import Job
from antrea.engine.core.place import TOUCHED, URGENT, Row, Table, discard_if_empty
from antrea.engine.core.reader import Absent, Reader
from antrea.engine.core.store import facts_in, sorted_facts, values_of, write
from antrea.engine.core.time_slice import SLICE
from antrea.engine.feeds import Feeds
from antrea.engine.ids import IdRef, Ids, Journal
from antrea.facts.unrealized import Unrealized

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from antrea.engine.unit import Unit
    from antrea.facts.fact import Fact

F = TypeVar("F", bound="Fact")


class Facts:
    """Rows by kind and key.

    A feed sees its own writes at once; units see them from the next pass on, all together: a pass runs over one state.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self.ids = Ids(journal)
        self.feeds = Feeds()
        self.writes: int = 0
        """How many writes there were, so that a caller can wait until a pass has seen its own."""
        self.busy: bool = False
        """Whether a pass runs: writes wait for the next."""
        self.reader = Reader()
        self.touched: list[Any] = []
        """Places whose answer changed since jobs were last woken."""
        self.rejected: list[tuple[type[Fact], str, Exception]] = []
        """Writes whose index raised: the row was left as it was."""
        self.listeners: list[Callable[[], None]] = []
        self.tables: dict[type, Table] = {}
        self._ranked = Table(type(self))
        self._changed: list[Any] = []
        self._inbox: dict[type[Fact], dict[str, tuple[Fact | None, bool]]] = {}
        self._draining: dict[type[Fact], dict[str, tuple[Fact | None, bool]]] = {}

    # what units and feeds read

    @contextlib.contextmanager
    def watch(self, *kinds: type[Fact]) -> Iterator[asyncio.Event]:
        """Return an event that is set, while the block lasts, at every write of these kinds and when one has synced.

        Kinds that units derive count as well: they are written in the pass that follows a feed's write.
        """
        event = asyncio.Event()

        def woken(_kind: type[Fact], _key: str) -> None:
            event.set()

        for kind in kinds:
            self.observe(kind, woken)
        try:
            yield event
        finally:
            for kind in kinds:
                self.table(kind).observers.remove(woken)

    def observe(self, kind: type[Fact], observer: Callable[[type[Fact], str], None]) -> None:
        """Call `observer` with kind and key after every write of `kind`, from now on; with an empty key when it has synced."""
        self.table(kind).observers.append(observer)

    def get(self, kind: type[F], key: str = "self") -> F | None:
        """Return the row of `kind` under `key`, or None."""
        table = self.tables.get(kind)
        if table is None:
            table = self.table(kind)
        row = table.rows.get(key)
        if self.reader.job is not None:
            if row is None:
                row = table.row(key)
            self.reader.note(row, table)
            return row.value  # type: ignore[no-any-return]
        for pending in (self._inbox, self._draining):
            if kind in pending and key in pending[kind]:
                return pending[kind][key][0]  # type: ignore[return-value]
        return None if row is None else row.value

    def need(self, kind: type[F], key: str = "self") -> F:
        """Return the row of `kind` under `key`. While there is none, the unit that asks wants nothing, and runs again.

        Raises Absent, for callers that are not units.
        """
        row = self.get(kind, key)
        if row is None:
            raise Absent(kind, key)
        return row

    def by(self, kind: type[F], index: str, value: Hashable) -> list[F]:
        """Return the rows that `index` finds under `value`, sorted by key. Raises LookupError for an unknown index."""
        table = self.tables.get(kind)
        if table is None:
            table = self.table(kind)
        of = table.index_by_name.get(index)
        if of is None:
            raise LookupError(f"{kind.__name__} has no index {index!r}")
        if self.reader.job is not None:
            bucket = of.rows.get(value)
            if bucket is None:
                bucket = of.rows[value] = Row(of, value)
            self.reader.note(bucket, table)
            bucket_rows = bucket.value
            return [] if bucket_rows is None else sorted_facts(bucket_rows)
        self._flush()
        rows = self._overlaid(kind, facts_in(of.rows.get(value)), of, value)
        return [rows[key] for key in sorted(rows)]

    def all(self, kind: type[F]) -> list[F]:
        """Return all rows of `kind`, sorted by key. Any change of the kind makes the job run again: prefer `by`."""
        table = self.table(kind)
        if self.reader.job is not None:
            self.reader.note(table.everyone, table)
            return [row.value for _, row in sorted(table.rows.items()) if row.value is not None]
        self._flush()
        rows = self._overlaid(
            kind, {key: row.value for key, row in table.rows.items() if row.value is not None}, None, None
        )
        return [rows[key] for key in sorted(rows)]

    def refusal(self, unit: Unit, key: str) -> str:
        """Return why an entry that `unit` wants for the row `key` was refused; empty if none was."""
        unrealized = self.get(Unrealized, f"{unit.name} {key}")
        return unrealized.why if unrealized is not None else ""

    def refusals(self, unit: Unit) -> list[Unrealized]:
        """Return all refusals of entries that `unit` wants."""
        return self.by(Unrealized, "unit", unit.name)

    def id(self, pool: str, key: str) -> int:
        """Return a small number that stays with `key` over restarts. Raises Unavailable if the pool is full."""
        number = self.ids.number(pool, key)
        self._uses((pool, key))
        return number

    def rank(self, pool: str, key: tuple[Any, ...]) -> int:
        """Return a number in the order of `key` among the keys of `pool`: OpenFlow priorities.

        The job runs again if another key moves it. Raises Unavailable if the pool is full.
        """
        number, moved = self.ids.rank(pool, key)
        for other in moved:
            row = self._ranked.rows.get((pool, other))
            if row is not None and not row.flags & TOUCHED:
                row.flags |= TOUCHED
                self.touched.append(row)
        if self.reader.job is not None:
            row = self._ranked.rows.get((pool, key))
            if row is None:
                row = self._ranked.rows[(pool, key)] = Row(self._ranked, (pool, key))
            self.reader.note(row, self._ranked)
        self._uses((pool, key))
        return number

    def _uses(self, ref: IdRef) -> None:
        reader = self.reader
        if reader.job is not None:
            if reader.ids is None:
                reader.ids = set()
            reader.ids.add(ref)

    # what feeds write

    def put(self, row: Fact, *, urgent: bool = False) -> None:
        """Write one row; an `urgent` one is evaluated and applied before bulk, in a pass of its own."""
        self._write(type(row), row.key, row, urgent)

    def drop(self, kind: type[Fact], key: str, *, urgent: bool = False) -> None:
        """Delete one row; a row that does not exist is not an error."""
        self._write(kind, key, None, urgent)

    def replace(self, kind: type[Fact], rows: Iterable[Fact]) -> None:
        """Write the result of a list: put these rows, drop the others of the kind."""
        fresh = {row.key: row for row in rows}
        gone = {key for key, row in self.table(kind).rows.items() if row.value is not None}
        gone |= self._draining.get(kind, {}).keys() | self._inbox.get(kind, {}).keys()
        for key in sorted(gone - fresh.keys()):
            self._write(kind, key, None, False)
        for key, row in fresh.items():
            self._write(kind, key, row, False)

    def synced(self, kind: type[Fact]) -> None:
        """The feed of `kind` has listed once; counts from the pass that sees the rows written before."""
        self.feeds.mark(kind)
        for observer in self.table(kind).observers:
            observer(kind, "")
        self._notify()

    def lost(self, kind: type[Fact]) -> None:
        """The rows of `kind` may be out of date until its feed calls `synced` again."""
        self.feeds.lost(kind)

    # what the engine does

    def table(self, kind: type) -> Table:
        """Return the table of `kind`, made if need be."""
        table = self.tables.get(kind)
        if table is None:
            table = self.tables[kind] = Table(kind)
        return table

    def jobs(self) -> Iterator[Job]:
        """All jobs."""
        for table in [table for table in self.tables.values() if table.is_fact]:
            for part in (table, *table.indexes):
                for row in [*part.rows.values()]:
                    if isinstance(row.jobs, Job):
                        yield row.jobs
                    elif row.jobs is not None:
                        yield from [job for job in row.jobs if job is not None]

    def drain(self) -> Iterator[None]:
        """Move written rows into their tables; writes from now on wait for the next pass.

        A row whose index raises stays as it was and is listed in `rejected`.
        """
        self._draining, self._inbox = self._inbox, {}
        marks = self.feeds.take_marks()
        for kind in list(self._draining):
            rows, table = self._draining[kind], self.table(kind)
            for key in list(rows):
                row, urgent = rows.pop(key)
                self._store(table, key, row, urgent)
                if SLICE.over():
                    yield
            del self._draining[kind]
        self.feeds.settle(marks)

    @property
    def waiting(self) -> bool:
        """Whether the next pass has anything to take in."""
        return bool(self._inbox or self.touched or self.feeds.marked)

    @property
    def empty(self) -> bool:
        """Whether no table holds anything, as after all rows were dropped."""
        return not (
            any(part.rows for table in self.tables.values() for part in (table, *table.indexes))
            or any(table.everyone.readers for table in self.tables.values())
            or self._ranked.rows
            or self._inbox
            or self._draining
            or self.touched
        )

    def _write(self, kind: type[Fact], key: str, row: Fact | None, urgent: bool) -> None:
        if self.reader.job is not None:
            raise RuntimeError(
                f"unit {self.reader.job.bound.unit.name} wrote a {kind.__name__}: units yield, feeds write"
            )
        table = self.tables.get(kind)
        if table is not None and table.derived:
            raise TypeError(f"{kind.__name__} is derived by units: no feed may write it")
        rows = self._inbox.get(kind)
        if rows is None:
            rows = self._inbox[kind] = {}
        if not urgent and key in rows:
            urgent = rows[key][1]
        rows[key] = (row, urgent)
        self.writes += 1
        if table is not None and table.observers:
            for observer in table.observers:
                observer(kind, key)
        self._notify()

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()

    def _store(self, table: Table, key: str, row: Fact | None, urgent: bool) -> None:
        place = table.rows.get(key)
        if place is None:
            if row is None:
                return
            place = table.rows[key] = Row(table, key)
        changed = self._changed
        try:
            write(place, row, changed)
        except Exception as error:  # noqa: BLE001 (a row that cannot be written is rejected alone)
            changed.clear()
            discard_if_empty(place)
            self.rejected.append((table.kind, key, error))
            return
        for changed_row in changed:
            if not changed_row.flags & TOUCHED:
                changed_row.flags |= TOUCHED
                self.touched.append(changed_row)
            if urgent:
                changed_row.flags |= URGENT
        changed.clear()

    def _flush(self) -> None:
        """Between passes, take written rows in, so that feeds read the tables themselves."""
        if not self.busy and self._inbox:
            for _ in self.drain():
                pass

    def _overlaid(
        self, kind: type[Fact], rows: dict[str, Any], index: Table | None, value: Any
    ) -> dict[str, Any]:
        for pending in (self._draining, self._inbox):
            for key, (row, _) in pending.get(kind, {}).items():
                rows.pop(key, None)
                if row is not None and (index is None or value in values_of(index, row)):
                    rows[key] = row
        return rows
