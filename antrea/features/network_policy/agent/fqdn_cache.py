"""Addresses that DNS answers gave to the names which rules match, until they expire.

Times are seconds of one clock, which the caller reads.
parity: pkg/agent/controller/networkpolicy/fqdn.go, fqdn_cache.go (limits; names that were used least recently go first)
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter, OrderedDict
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from antrea.features.network_policy.agent.fqdn import FqdnAddress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antrea.features.network_policy.agent.dns_answer import DnsAnswer

MOST_NAMES = 10_000
"""Of all patterns together."""
MOST_PER_WILDCARD = 1024
"""Names that one wildcard matches."""
MOST_ADDRESSES = 256
"""Of one name; those that expire first go first."""
LONGEST_TTL = 7 * 86_400
"""Seconds that an address is kept at most without a new answer."""
SPARE = 64
"""Entries of the heap that may be out of date, beside one for each name."""
SELECTOR_LIMIT, TOTAL_LIMIT = "selector_limit", "total_limit"
"""Why a name went."""
NEARLY_FULL = 0.8
"""Share of a limit from which on it is reported."""
UNUSED_SECONDS = 3600.0
"""How long a name that wildcards alone match is kept up to date without an answer to a Pod."""


class Fill(NamedTuple):
    """How much of a limit is used."""

    limit: str
    """SELECTOR_LIMIT or TOTAL_LIMIT."""
    pattern: str
    """The wildcard whose names these are; empty: those of all patterns."""
    names: int
    most: int

    @property
    def share(self) -> float:
        return self.names / self.most


class CachedAddress(NamedTuple):
    """One row of the cache."""

    name: str
    address: str
    expires: float


class _Name(msgspec.Struct):
    """One name; `used` is when a Pod got an answer on it."""

    used: float
    patterns: tuple[str, ...] = ()
    given_up: frozenset[str] = frozenset()
    """Wildcards that match it and had too many names; until a Pod gets an answer on it again."""
    expires: dict[str, float] = msgspec.field(default_factory=dict)
    """By address."""
    scheduled: float | None = None
    """When it is due next, as the heap has it."""


class FqdnCache:
    """Names that match patterns of rules, and their addresses."""

    def __init__(
        self,
        *,
        min_ttl: float = 0,
        names: int = MOST_NAMES,
        per_wildcard: int = MOST_PER_WILDCARD,
        row: type[FqdnAddress] = FqdnAddress,
    ) -> None:
        """`min_ttl` is the least number of seconds that an address is kept, `row` the kind of what is yielded."""
        self._row = row
        self.min_ttl = min_ttl
        self.evicted: Counter[str] = Counter()
        """How many names went since there were too many, by the limit."""
        self._most, self._per_wildcard = names, per_wildcard
        self._exact: frozenset[str] = frozenset()
        self._regexes: dict[str, re.Pattern[str]] = {}
        self._names: OrderedDict[str, _Name] = OrderedDict()
        self._wildcards: dict[str, OrderedDict[str, None]] = {}
        self._counts: Counter[FqdnAddress] = Counter()
        self._changed: dict[FqdnAddress, None] = {}
        self._due: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def rows(self) -> Iterator[CachedAddress]:
        """All there is."""
        for name, known in self._names.items():
            for address, expires in known.expires.items():
                yield CachedAddress(name, address, expires)

    def names(self) -> dict[str, tuple[str, ...]]:
        """The addresses of each name."""
        return {name: tuple(known.expires) for name, known in self._names.items()}

    def fills(self) -> list[Fill]:
        """Of all names together, and of the wildcard with the most."""
        largest = max(self._wildcards, key=lambda one: len(self._wildcards[one]), default="")
        count = len(self._wildcards.get(largest, ()))
        return [
            Fill(TOTAL_LIMIT, "", len(self._names), self._most),
            Fill(SELECTOR_LIMIT, largest, count, self._per_wildcard),
        ]

    @property
    def patterns(self) -> tuple[str, ...]:
        """What addresses are kept of."""
        return (*sorted(self._exact), *self._regexes)

    def wanted(self, answer: DnsAnswer) -> list[FqdnAddress]:
        """The rows that an answer stands for."""
        patterns = self.matching(answer.name)
        return [self._row(pattern, address) for pattern in patterns for address, _ in answer.addresses]

    def changes(self) -> dict[FqdnAddress, bool]:
        """What has changed since the last call: rows that there are now, and rows that are gone."""
        found = {row: self._counts[row] > 0 for row in self._changed}
        for row, present in found.items():
            if not present:
                del self._counts[row]
        self._changed.clear()
        return found

    def set_patterns(self, patterns: Iterable[str]) -> list[str]:
        """Keep addresses of these from now on. Return names without one: Pods that resolved them before may not do so again."""
        wanted = frozenset(patterns)
        exact = frozenset(one for one in wanted if "*" not in one)
        self._exact = exact
        self._regexes = {
            one: self._regexes.get(one) or re.compile(fnmatch.translate(one)) for one in wanted - exact
        }
        for name, known in [*self._names.items()]:
            self._place(name, known, known.expires)
        return sorted(exact - self._names.keys())

    def matching(self, name: str) -> tuple[str, ...]:
        """The patterns that a name matches."""
        wild = (pattern for pattern, regex in self._regexes.items() if regex.match(name))
        return (*((name,) if name in self._exact else ()), *wild)

    def learn(self, name: str, addresses: Iterable[tuple[str, int]], now: float) -> None:
        """Take in the answer that a Pod got for `name`: addresses and seconds. Others of that name stay until they expire."""
        if self.matching(name):
            known = self._names.setdefault(name, _Name(now))
            known.used, known.given_up = now, frozenset()
            self._touch(name, known)
            self._place(name, known, self._merged(known.expires, addresses, now))
            self._make_room(known)

    def answered(self, name: str, addresses: Iterable[tuple[str, int]], now: float) -> None:
        """Take in the answer to a question of the agent: what has expired and is not in it goes."""
        known = self._names.get(name)
        if known is None:
            self.learn(name, addresses, now)
            return
        left = {address: until for address, until in known.expires.items() if until > now}
        self._place(name, known, self._merged(left, addresses, now))

    def restore(self, patterns: Iterable[str], names: Mapping[str, Iterable[str]], now: float) -> None:
        """Take over what an earlier process had: all of it is due at once."""
        self.set_patterns(patterns)
        for name, addresses in names.items():
            self.learn(name, ((address, 0) for address in addresses), now)

    def due(self, now: float) -> Iterator[str]:
        """Names of which an address has expired; `answered` or `retry` has them come again."""
        while self._due and self._due[0][0] <= now:
            at, name = heappop(self._due)
            known = self._names.get(name)
            if known is None or known.scheduled != at:
                continue
            known.scheduled = None
            if known.expires and min(known.expires.values()) > now:
                self._schedule(name, known)
            elif name not in self._exact and now - known.used > UNUSED_SECONDS:
                self._place(name, known, {a: until for a, until in known.expires.items() if until > now})
            else:
                yield name

    def retry(self, name: str, at: float) -> None:
        """Have a name due at that time, since it was not answered."""
        if (known := self._names.get(name)) is not None:
            known.scheduled = at
            heappush(self._due, (at, name))

    def _merged(
        self, before: Mapping[str, float], addresses: Iterable[tuple[str, int]], now: float
    ) -> dict[str, float]:
        merged = dict(before)
        for address, seconds in addresses:
            merged[address] = max(now + max(min(seconds, LONGEST_TTL), self.min_ttl), merged.get(address, 0))
        latest = sorted(merged, key=merged.__getitem__)[-MOST_ADDRESSES:]
        return {address: merged[address] for address in latest}

    def _place(self, name: str, known: _Name, expires: dict[str, float]) -> None:
        """Set the addresses of a name, and its patterns anew; without either it is forgotten."""
        matching = self.matching(name) if expires else ()
        patterns = tuple(one for one in matching if one not in known.given_up)
        before = {self._row(pattern, one) for pattern in known.patterns for one in known.expires}
        after = {self._row(pattern, one) for pattern in patterns for one in expires}
        for row in sorted(after - before, key=_key):
            self._count(row, 1)
        for row in sorted(before - after, key=_key):
            self._count(row, -1)
        for pattern in known.patterns:
            if pattern not in patterns and (names := self._wildcards.get(pattern)) is not None:
                names.pop(name, None)
                if not names:
                    del self._wildcards[pattern]
        for pattern in patterns:
            if pattern != name:
                self._wildcards.setdefault(pattern, OrderedDict())[name] = None
        known.patterns, known.expires = patterns, expires
        if patterns:
            self._schedule(name, known)
        else:
            self._names.pop(name, None)

    def _count(self, row: FqdnAddress, by: int) -> None:
        before = self._counts[row]
        self._counts[row] = before + by
        if not before or not before + by:
            self._changed[row] = None

    def _touch(self, name: str, known: _Name) -> None:
        self._names.move_to_end(name)
        for pattern in known.patterns:
            if pattern in self._wildcards:
                self._wildcards[pattern].move_to_end(name)

    def _make_room(self, known: _Name) -> None:
        """The patterns with too many names give theirs up; names stay for others, which belong to other users' rules."""
        for pattern in known.patterns:
            names = self._wildcards.get(pattern)
            if names is not None and len(names) > self._per_wildcard:
                self._give_up(pattern, SELECTOR_LIMIT)
        while len(self._names) > self._most:
            largest = max(self._wildcards, key=lambda one: len(self._wildcards[one]), default="")
            if len(self._wildcards.get(largest, ())) > 1:
                self._give_up(largest, TOTAL_LIMIT)
            else:
                name = next(iter(self._names))
                self.evicted[TOTAL_LIMIT] += 1
                self._place(name, self._names[name], {})

    def _give_up(self, pattern: str, limit: str) -> None:
        """The name of a wildcard that was used least recently counts for it no more."""
        name = next(iter(self._wildcards[pattern]))
        known = self._names[name]
        known.given_up |= {pattern}
        self.evicted[limit] += 1
        self._place(name, known, known.expires)

    def _schedule(self, name: str, known: _Name) -> None:
        at = min(known.expires.values(), default=None)
        if at is None or (known.scheduled is not None and known.scheduled <= at):
            return
        known.scheduled = at
        heappush(self._due, (at, name))
        if len(self._due) > 2 * len(self._names) + SPARE:
            self._due = [
                (one.scheduled, key) for key, one in self._names.items() if one.scheduled is not None
            ]
            heapify(self._due)


def _key(row: FqdnAddress) -> str:
    return row.key
