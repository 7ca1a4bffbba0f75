"""All this process knows: feeds write, units read, and every read is recorded."""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from antrea.engine.feeds import Feeds
from antrea.engine.ids import IdRef, Ids, Journal
from antrea.engine.store import Read, Store, places

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from antrea.engine.job import Job
    from antrea.facts.fact import Fact

F = TypeVar("F", bound="Fact")


class Reading:
    """What one run of one job has read so far."""

    __slots__ = ("ids", "job", "reads")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.reads: set[Read] = set()
        self.ids: set[IdRef] = set()


class Facts:
    """Rows by kind and key.

    A feed sees its own writes at once; units see them from the next pass on, all together: a pass runs over one state.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self.ids = Ids(journal)
        self.store = Store()
        self.feeds = Feeds()
        self.writes = 0
        """How many writes there were, so that a caller can wait until a pass has seen its own."""
        self.busy = False
        """A pass is running: writes wait for the next."""
        self.reading: Reading | None = None
        self.touched: dict[Read, bool] = {}
        """Reads whose answer changed since jobs were last woken -> is it urgent?"""
        self.rejected: list[tuple[type[Fact], str, Exception]] = []
        """Writes whose index raised: the row was left as it was."""
        self.derived: dict[type[Fact], Callable[[Job, type[Fact]], None]] = {}
        """Kinds that only units write -> whom to tell that a job reads one."""
        self.listeners: list[Callable[[], None]] = []
        self.timed: dict[type[Fact], dict[str, float]] = {}
        """Kinds whose news somebody times -> when each row changed last, by time.monotonic."""
        self._readers: dict[Read, Job | dict[Job, None]] = {}
        """Most reads have one reader: it stands for itself."""
        self._inbox: dict[type[Fact], dict[str, tuple[Fact | None, bool]]] = {}
        self._draining: dict[type[Fact], dict[str, tuple[Fact | None, bool]]] = {}

    # what units and feeds read

    @contextlib.contextmanager
    def news(self) -> Iterator[asyncio.Event]:
        """An event that is set at every write, for as long as the block lasts."""
        event = asyncio.Event()
        self.listeners.append(event.set)
        try:
            yield event
        finally:
            self.listeners.remove(event.set)

    def get(self, kind: type[F], key: str = "self") -> F | None:
        """The row of `kind` under `key`, or None."""
        if self.reading is not None:
            self._note(self.reading, (kind, key))
        else:
            for pending in (self._inbox, self._draining):
                if kind in pending and key in pending[kind]:
                    return pending[kind][key][0]  # type: ignore[return-value]
        return self.store.get(kind, key)  # type: ignore[return-value]

    def by(self, kind: type[F], index: str, value: Hashable) -> list[F]:
        """The rows that index `index` finds under `value`, sorted by key. Raises LookupError for an unknown index."""
        place = (kind, index, value)
        if self.reading is not None:
            self._note(self.reading, place)
            rows = self.store.by(*place)
        else:
            self._flush()
            rows = self._overlaid(kind, dict(self.store.by(*place)), place)
        if len(rows) < 2:
            return [*rows.values()]  # type: ignore[list-item]
        return [rows[key] for key in sorted(rows)]  # type: ignore[misc]

    def all(self, kind: type[F]) -> list[F]:
        """Every row of `kind`, sorted by key: wakes the job at every change of the kind, so prefer `by`."""
        if self.reading is not None:
            self._note(self.reading, (kind,))
            rows = self.store.all(kind)
        else:
            self._flush()
            rows = self._overlaid(kind, dict(self.store.all(kind)), None)
        return [rows[key] for key in sorted(rows)]  # type: ignore[misc]

    def id(self, pool: str, key: str) -> int:
        """A small number that stays with `key` over restarts. Raises Unavailable when the pool is full."""
        number = self.ids.number(pool, key)
        if self.reading is not None:
            self.reading.ids.add((pool, key))
        return number

    def rank(self, pool: str, key: tuple[Any, ...]) -> int:
        """A number that stands to those of other keys of `pool` as `key` stands to them: OpenFlow priorities.

        When a newcomer moves it, the job runs again. Raises Unavailable when the pool is full.
        """
        number, moved = self.ids.rank(pool, key)
        for other in moved:
            self.touched[Facts, pool, other] = False
        if self.reading is not None:
            self._note(self.reading, (Facts, pool, key))
            self.reading.ids.add((pool, key))
        return number

    # what feeds write

    def put(self, row: Fact, *, urgent: bool = False) -> None:
        """Write one row; `urgent` if somebody waits for it: it goes before bulk, alone."""
        self._write(type(row), row.key, row, urgent)

    def drop(self, kind: type[Fact], key: str, *, urgent: bool = False) -> None:
        """Forget one row; a row that is not there is no error."""
        self._write(kind, key, None, urgent)

    def replace(self, kind: type[Fact], rows: Iterable[Fact]) -> None:
        """A list's result: put these, drop the others of that kind."""
        fresh = {row.key: row for row in rows}
        gone = (
            self.store.all(kind).keys()
            | self._draining.get(kind, {}).keys()
            | self._inbox.get(kind, {}).keys()
        )
        for key in sorted(gone - fresh.keys()):
            self._write(kind, key, None, False)
        for key, row in fresh.items():
            self._write(kind, key, row, False)

    def synced(self, kind: type[Fact]) -> None:
        """The feed of `kind` has listed once; counts from the pass that sees the rows written before."""
        self.feeds.mark(kind)
        self._tell()

    def lost(self, kind: type[Fact]) -> None:
        """The feed of `kind` no longer knows whether its rows are true; it will say `synced` again."""
        self.feeds.lost(kind)

    # what the engine does

    def drain(self) -> Iterator[None]:
        """Move what was written into the store, row by row; writes from now on wait for the next pass.

        A row whose index raises is left as it was and listed in `rejected`.
        """
        self._draining, self._inbox = self._inbox, {}
        marks = self.feeds.take_marks()
        for kind in list(self._draining):
            rows = self._draining[kind]
            for key in list(rows):
                row, urgent = rows.pop(key)
                self._store(kind, key, row, urgent)
                yield
            del self._draining[kind]
        self.feeds.settle(marks)

    def readers(self, read: Read) -> Iterable[Job]:
        """The jobs whose last run read `read`."""
        found = self._readers.get(read, ())
        return found if isinstance(found, (dict, tuple)) else (found,)

    def unread(self, job: Job, reads: Iterable[Read]) -> None:
        """`job` no longer reads these."""
        for read in reads:
            readers = self._readers[read]
            if isinstance(readers, dict):
                readers.pop(job, None)
            if not readers or readers is job:
                del self._readers[read]

    @property
    def waiting(self) -> bool:
        """Is there anything that the next pass has to take in?"""
        return bool(self._inbox or self.touched or self.feeds.marked)

    @property
    def empty(self) -> bool:
        """No table holds anything (what is left after everything was dropped)."""
        return not (
            self.store.rows
            or self.store.found
            or self._readers
            or self._inbox
            or self._draining
            or self.touched
        )

    def _write(self, kind: type[Fact], key: str, row: Fact | None, urgent: bool) -> None:
        if self.reading is not None:
            raise RuntimeError(
                f"unit {self.reading.job.unit.name} wrote a {kind.__name__}: units yield, feeds write"
            )
        if kind in self.derived:
            raise TypeError(f"{kind.__name__} is derived by units: no feed may write it")
        if kind in self.timed and self.get(kind, key) != row:
            self.timed[kind][key] = monotonic()
        rows = self._inbox.setdefault(kind, {})
        rows[key] = (row, urgent or rows.get(key, (None, False))[1])
        self.writes += 1
        self._tell()

    def _tell(self) -> None:
        for listener in self.listeners:
            listener()

    def _store(self, kind: type[Fact], key: str, row: Fact | None, urgent: bool) -> None:
        try:
            touched = self.store.write(kind, key, row)
        except Exception as why:
            self.rejected.append((kind, key, why))
            return
        for read in touched:
            self.touched[read] = urgent or self.touched.get(read, False)

    def _note(self, reading: Reading, read: Read) -> None:
        if read in reading.reads:
            return
        if (learn := self.derived.get(read[0])) is not None:
            learn(reading.job, read[0])
        reading.reads.add(read)
        job = reading.job
        readers = self._readers.setdefault(read, job)
        if isinstance(readers, dict):
            readers[job] = None
        elif readers is not job:
            self._readers[read] = {readers: None, job: None}

    def _flush(self) -> None:
        """Between passes a feed's own reads see the store itself."""
        if not self.busy and self._inbox:
            for _ in self.drain():
                pass

    def _overlaid(self, kind: type[Fact], rows: dict[str, Fact], place: Read | None) -> dict[str, Fact]:
        for pending in (self._draining, self._inbox):
            for key, (row, _) in pending.get(kind, {}).items():
                rows.pop(key, None)
                if row is not None and (place is None or place in places(kind, row)):
                    rows[key] = row
        return rows
