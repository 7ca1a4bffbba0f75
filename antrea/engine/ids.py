"""Small numbers that keep their meaning: journalled before use, freed only when nothing carries them any more."""

from __future__ import annotations

import logging
from collections import Counter
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from antrea.engine.order_numbers import Ranks
from antrea.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)

IdRef = tuple[str, Any]
"""(pool, key)"""


class Record(NamedTuple):
    """One line of the journal: `number` belongs to `key` of `pool` from now on; 0 means it was freed."""

    pool: str
    key: str
    number: int


class Journal(Protocol):
    """Where numbers outlive the process."""

    def read(self) -> Iterable[Record]:
        """Everything written so far, oldest first."""

    def append(self, record: Record) -> None:
        """Return only when the record outlives this process."""

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replace the whole journal at once; called when most of it is history."""


class _Pool:
    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.taken: set[int] = set()
        self.freed: list[int] = []
        self.next = 1
        self.floor = 0
        self.most: int | None = None

    def adopt(self, key: str, number: int) -> None:
        self.numbers[key] = number
        self.taken.add(number)

    def free_number(self) -> int | None:
        while self.freed:
            number = heappop(self.freed)
            if number > self.floor and number not in self.taken:
                return number
        self.next = max(self.next, self.floor + 1)
        while self.next in self.taken:
            self.next += 1
        return self.next if self.most is None or self.next <= self.most else None

    def free(self, key: str) -> None:
        number = self.numbers.pop(key)
        self.taken.discard(number)
        if not self.numbers:
            self.freed, self.next = [], 1
        elif number < self.next:
            heappush(self.freed, number)


class Ids:
    """Pools of numbers, from 1 up, the smallest free one first. Without a journal they live as long as the process."""

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal = journal
        self._pools: dict[str, _Pool] = {}
        self._ranks: dict[str, Ranks] = {}
        self._uses: Counter[IdRef] = Counter()
        self._unclaimed: set[IdRef] = set()
        self._lines = 0
        if journal is not None:
            self._load(journal)

    def number(self, pool: str, key: str) -> int:
        """The number of `key`, new or known. Raises Unavailable if the pool is full, and what the journal raises."""
        self._unclaimed.discard((pool, key))
        numbers = self._pool(pool)
        if (known := numbers.numbers.get(key)) is not None:
            return known
        number = numbers.free_number()
        if number is None:
            raise Unavailable(f"a free number in pool {pool} (all {numbers.most} are in use)")
        try:
            self._write(Record(pool, key, number))
        except BaseException:
            heappush(numbers.freed, number)
            raise
        numbers.adopt(key, number)
        return number

    def rank(self, pool: str, key: Any) -> tuple[int, list[Any]]:
        """The order number of `key`, new or known, and the keys that moved for it. Raises Unavailable if the pool is full."""
        return self._order(pool).number(key)

    def between(self, pool: str, low: int, high: int) -> None:
        """Order numbers of `pool` lie from `low` to `high`; to be called before the first is given."""
        ranks = self._order(pool)
        ranks.low, ranks.high = low, high

    def start_above(self, pool: str, number: int) -> None:
        """New numbers are greater than `number` until the last round is swept (the journal is missing, OVS is not empty)."""
        numbers = self._pool(pool)
        numbers.floor = max(numbers.floor, number)

    def limit(self, pool: str, most: int) -> None:
        """Numbers of `pool` are at most `most` (as many bits as the register has)."""
        self._pool(pool).most = most

    def hold(self, ref: IdRef) -> None:
        """One more job uses the number, or waits for entries that carry it to go."""
        self._uses[ref] += 1

    def release(self, ref: IdRef) -> None:
        """Release the number from a job; the last release frees it."""
        self._uses[ref] -= 1
        if self._uses[ref] == 0:
            del self._uses[ref]
            self._free(ref)

    def swept(self) -> None:
        """Nothing of the previous round is left: free the numbers that were not asked for again, forget the floors."""
        for ref in self._unclaimed:
            self._free(ref)
        self._unclaimed.clear()
        for pool in self._pools.values():
            if pool.floor:
                pool.floor, pool.next, pool.freed = 0, 1, []

    def standing(self) -> dict[IdRef, int]:
        """Every number in use."""
        return {
            (name, key): number for name, pool in self._pools.items() for key, number in pool.numbers.items()
        }

    def _pool(self, name: str) -> _Pool:
        if (pool := self._pools.get(name)) is None:
            pool = self._pools[name] = _Pool()
        return pool

    def _order(self, name: str) -> Ranks:
        return self._ranks.setdefault(name, Ranks())

    def _free(self, ref: IdRef) -> None:
        pool, key = ref
        if pool in self._ranks:
            self._ranks[pool].free(key)
            return
        self._pools[pool].free(key)
        try:
            self._write(Record(pool, key, 0))
        except Exception as error:  # noqa: BLE001 (the journal is not essential for a release)
            # harmless: the next start takes the number for unclaimed and frees it again; a later owner's line wins
            fields = {"pool": pool, "key": key, "err": str(error)}
            log.warning("Failed to journal a released ID", extra={"fields": fields})

    def _load(self, journal: Journal) -> None:
        owners: dict[tuple[str, int], str] = {}
        numbers: dict[IdRef, int] = {}
        for pool, key, number in journal.read():
            if (before := numbers.pop((pool, key), 0)) and owners.get((pool, before)) == key:
                del owners[pool, before]
            if number:
                numbers[pool, key] = number
                owners[pool, number] = key  # a later line wins: the line that freed it may have been lost
        for (pool, number), key in owners.items():
            self._pool(pool).adopt(key, number)
            self._unclaimed.add((pool, key))
        self._rewrite(journal)

    def _write(self, record: Record) -> None:
        if self._journal is None:
            return
        self._journal.append(record)
        self._lines += 1
        if self._lines > 1000 + 2 * sum(len(pool.numbers) for pool in self._pools.values()):
            self._rewrite(self._journal)

    def _rewrite(self, journal: Journal) -> None:
        standing = self.standing()
        journal.rewrite(Record(pool, key, number) for (pool, key), number in standing.items())
        self._lines = len(standing)
