"""Cache of the addresses that DNS answers gave to the names which rules match, until they expire.

Times are seconds of one clock, which the caller reads. Names are accounted to the Pods that resolved them: if a limit is
exceeded, the Pod with the most loses its own.
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
from antrea.features.network_policy.agent.name_share import AGENT, NameShare

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antrea.features.network_policy.agent.dns_answer import DnsAnswer

MAX_NAMES = 10_000
"""Maximum number of names of all patterns together."""
MAX_NAMES_PER_WILDCARD = 1024
"""Maximum number of names that one wildcard matches."""
MAX_PER_NAME = 256
"""Maximum number of addresses of one name; those that expire first go first."""
MAX_ADDRESSES = 20_000
"""Maximum number of addresses of all names; an address counts once for each pattern that its name matches."""
MAX_PER_WILDCARD = 5_000
"""Maximum number of addresses of the names that one wildcard matches."""
MAX_PER_POD = 10_000
"""Maximum number of addresses of the names that one Pod has resolved."""
MAX_TTL = 3600
"""Maximum number of seconds that an address is kept without a new answer, whatever its time to live; `fqdnCacheMinTTL` may be
more.
"""
SPARE = 64
"""Number of heap entries that may be out of date, beside one for each name."""
SELECTOR_LIMIT, TOTAL_LIMIT, POD_LIMIT = "selector_limit", "total_limit", "pod_limit"
"""Reasons why names are evicted."""
NEARLY_FULL = 0.8
"""Share of a limit from which it is reported."""
UNUSED_SECONDS = 3600.0
"""Seconds that a name which only wildcards match is refreshed without an answer to a Pod."""


class Fill(NamedTuple):
    """Use of a limit."""

    limit: str
    """SELECTOR_LIMIT or TOTAL_LIMIT."""
    pattern: str
    """Wildcard of the names; empty for those of all patterns."""
    used: int
    most: int
    what: str = "names"
    """names or addresses."""

    @property
    def share(self) -> float:
        return self.used / self.most


class CachedAddress(NamedTuple):
    """Row of the cache."""

    name: str
    address: str
    expires: float


class _Name(msgspec.Struct):
    """Name; `used` is when a Pod got an answer for it."""

    used: float
    patterns: tuple[str, ...] = ()
    given_up: frozenset[str] = frozenset()
    """Wildcards that match it and had too many names; until a Pod gets an answer for it again."""
    expires: dict[str, float] = msgspec.field(default_factory=dict)
    """Expiry by address."""
    scheduled: float | None = None
    """Next due time, as the heap has it."""


class FqdnCache:
    """Names that match patterns of rules, and their addresses."""

    def __init__(
        self,
        *,
        min_ttl: float = 0,
        names: int = MAX_NAMES,
        per_wildcard: int = MAX_NAMES_PER_WILDCARD,
        addresses: tuple[int, int, int] = (MAX_ADDRESSES, MAX_PER_WILDCARD, MAX_PER_POD),
        row: type[FqdnAddress] = FqdnAddress,
    ) -> None:
        """Limits on names are `names` and `per_wildcard`; those on `addresses` are of all, of a wildcard and of a Pod.

        `min_ttl` is the minimum number of seconds that an address is kept, `row` the kind of the yielded rows.
        """
        self._row = row
        self.min_ttl = min_ttl
        self.evicted: Counter[str] = Counter()
        """Number of evicted names by limit."""
        in_all, of_wildcard, self._per_pod = addresses
        self._all = NameShare(names, in_all)
        self._of_wildcard = (per_wildcard, of_wildcard)
        self._exact: frozenset[str] = frozenset()
        self._regexes: dict[str, re.Pattern[str]] = {}
        self._names: OrderedDict[str, _Name] = OrderedDict()
        self._wildcards: dict[str, NameShare] = {}
        self._counts: Counter[FqdnAddress] = Counter()
        self._changed: dict[FqdnAddress, None] = {}
        self._due: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def rows(self) -> Iterator[CachedAddress]:
        """Yield all addresses."""
        for name, known in self._names.items():
            for address, expires in known.expires.items():
                yield CachedAddress(name, address, expires)

    def names(self) -> dict[str, tuple[str, ...]]:
        """Return the addresses of each name."""
        return {name: tuple(known.expires) for name, known in self._names.items()}

    def users(self) -> dict[str, tuple[str, ...]]:
        """Return the Pods that have resolved each name, as far as they are remembered."""
        users_by_name = ((name, tuple(sorted(self._all.users(name) - {AGENT}))) for name in self._names)
        return {name: users for name, users in users_by_name if users}

    def fills(self) -> list[Fill]:
        """Return the use of limits by all names together, and by the wildcard with the most."""
        fills = [(_fill(SELECTOR_LIMIT, pattern, share)) for pattern, share in self._wildcards.items()]
        none = Fill(SELECTOR_LIMIT, "", 0, self._of_wildcard[0])
        return [_fill(TOTAL_LIMIT, "", self._all), max(fills, key=lambda fill: fill.share, default=none)]

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns for which addresses are kept."""
        return (*sorted(self._exact), *self._regexes)

    def wanted(self, answer: DnsAnswer) -> list[FqdnAddress]:
        """Return the rows that an answer stands for."""
        patterns = self.matching(answer.name)
        return [self._row(pattern, address) for pattern in patterns for address, _ in answer.addresses]

    def changes(self) -> dict[FqdnAddress, bool]:
        """Return the changes since the last call: True for rows that exist now, False for rows that are gone."""
        changes = {row: row in self._counts for row in self._changed}
        self._changed.clear()
        return changes

    def set_patterns(self, patterns: Iterable[str]) -> list[str]:
        """Keep addresses of these patterns from now on. Return names without one: Pods that resolved them before may not do so
        again.
        """
        wanted = frozenset(patterns)
        exact = frozenset(pattern for pattern in wanted if "*" not in pattern)
        self._exact = exact
        self._regexes = {
            pattern: self._regexes.get(pattern) or re.compile(fnmatch.translate(pattern))
            for pattern in wanted - exact
        }
        for name, known in [*self._names.items()]:
            self._place(name, known, known.expires)
        return sorted(exact - self._names.keys())

    def matching(self, name: str) -> tuple[str, ...]:
        """Return the patterns that a name matches."""
        wild = (pattern for pattern, regex in self._regexes.items() if regex.match(name))
        return (*((name,) if name in self._exact else ()), *wild)

    def learn(self, name: str, addresses: Iterable[tuple[str, int]], now: float, pod: str = AGENT) -> None:
        """Add the answer that `pod` got for `name`: addresses and seconds. Other addresses of the name stay until they expire."""
        if self.matching(name):
            known = self._names.setdefault(name, _Name(now))
            known.used, known.given_up = now, frozenset()
            self._names.move_to_end(name)
            self._place(name, known, self._merged(known.expires, addresses, now))
            if name in self._names:
                self._use(name, known, pod)
                self._make_room(known, pod)

    def answered(self, name: str, addresses: Iterable[tuple[str, int]], now: float) -> None:
        """Add the answer to a query of the agent: expired addresses that it lacks are removed."""
        known = self._names.get(name)
        if known is None:
            self.learn(name, addresses, now)
            return
        left = {address: until for address, until in known.expires.items() if until > now}
        self._place(name, known, self._merged(left, addresses, now))
        if name in self._names:
            self._make_room(known, AGENT)

    def restore(
        self,
        patterns: Iterable[str],
        names: Mapping[str, Iterable[str]],
        users: Mapping[str, Iterable[str]],
        now: float,
    ) -> None:
        """Take over the content of an earlier process: all of it is due immediately."""
        self.set_patterns(patterns)
        for name, addresses in names.items():
            kept = [(address, 0) for address in addresses]
            for pod in users.get(name) or (AGENT,):
                self.learn(name, kept, now, pod)

    def due(self, now: float) -> Iterator[str]:
        """Yield names of which an address has expired; `answered` or `retry` schedules them again."""
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
        """Schedule a name at that time, since it was not answered."""
        if (known := self._names.get(name)) is not None:
            known.scheduled = at
            heappush(self._due, (at, name))

    def _merged(
        self, before: Mapping[str, float], addresses: Iterable[tuple[str, int]], now: float
    ) -> dict[str, float]:
        merged = dict(before)
        for address, seconds in addresses:
            merged[address] = max(now + max(min(seconds, MAX_TTL), self.min_ttl), merged.get(address, 0))
        latest = sorted(merged, key=merged.__getitem__)[-MAX_PER_NAME:]
        return {address: merged[address] for address in latest}

    def _place(self, name: str, known: _Name, expires: dict[str, float]) -> None:
        """Set the addresses of a name, and its patterns; without either it is removed."""
        matching = self.matching(name) if expires else ()
        patterns = tuple(pattern for pattern in matching if pattern not in known.given_up)
        for pattern in patterns:
            old = known.expires if pattern in known.patterns else {}
            for address in sorted(expires.keys() - old.keys()):
                self._count(self._row(pattern, address), 1)
        for pattern in known.patterns:
            new = expires if pattern in patterns else {}
            for address in sorted(known.expires.keys() - new.keys()):
                self._count(self._row(pattern, address), -1)
        self._place_in_shares(name, known.patterns, patterns, len(expires))
        known.patterns, known.expires = patterns, expires
        if patterns:
            self._schedule(name, known)
        else:
            self._names.pop(name, None)

    def _place_in_shares(
        self, name: str, before: tuple[str, ...], patterns: tuple[str, ...], addresses: int
    ) -> None:
        """Count the addresses of a name for its wildcards, for the Pods that use it, and in total."""
        for pattern in before:
            if pattern not in patterns and (share := self._wildcards.get(pattern)) is not None:
                share.forget(name)
                if not share:
                    del self._wildcards[pattern]
        if not patterns:
            self._all.forget(name)
            return
        self._all.set_size(name, addresses * len(patterns))
        for pattern in patterns:
            if pattern != name:
                if (share := self._wildcards.get(pattern)) is None:
                    share = self._wildcards[pattern] = NameShare(*self._of_wildcard)
                share.set_size(name, addresses)
                if pattern not in before:
                    for user in self._all.users(name):
                        share.use(name, user)

    def _count(self, row: FqdnAddress, by: int) -> None:
        before = self._counts[row]
        self._counts[row] = before + by
        if not self._counts[row]:
            del self._counts[row]
        if before and before + by:
            return
        # what comes and goes again between two calls of `changes` is none
        if row in self._changed:
            del self._changed[row]
        else:
            self._changed[row] = None

    def _use(self, name: str, known: _Name, pod: str) -> None:
        """Record the use of a name; names without a wildcard are used by the agent as well, which queries them."""
        for user in dict.fromkeys((AGENT, pod) if name in self._exact else (pod,)):
            for share in (self._all, *filter(None, map(self._wildcards.get, known.patterns))):
                share.use(name, user)

    def _make_room(self, known: _Name, pod: str) -> None:
        """Make room: the Pod with the most releases its least recently used name; names stay for other Pods, and other users'
        rules.
        """
        while pod != AGENT and self._all.count(pod) > self._per_pod:
            self._release(next(iter(self._all.used(pod))), pod, POD_LIMIT)
        for pattern in known.patterns:
            while (share := self._wildcards.get(pattern)) is not None and share.is_exceeded:
                user = share.largest_user()
                self._give_up(next(iter(share.used(user))), user, (pattern,), SELECTOR_LIMIT)
        while self._all.is_exceeded:
            user = self._all.largest_user()
            self._release(self._least_used(user), user, TOTAL_LIMIT)

    def _least_used(self, user: str) -> str:
        """Return the least recently used name of a Pod among those of the wildcard with the most of its names."""
        used = [share.used(user) for share in self._wildcards.values()]
        largest = max(used, key=len, default=self._all.used(user))
        return next(iter(largest if len(largest) > 1 else self._all.used(user)))

    def _release(self, name: str, user: str, limit: str) -> None:
        """Release a name of a Pod for all patterns."""
        if self._all.release(name, user):
            self.evicted[limit] += 1
            self._place(name, self._names[name], {})
        else:
            self._give_up(name, user, self._names[name].patterns, limit)

    def _give_up(self, name: str, user: str, patterns: Iterable[str], limit: str) -> None:
        """Release a name of a Pod for wildcards; wildcards by which no other Pod uses it do not count it any more."""
        known = self._names[name]
        gone = [
            pattern for pattern in patterns if (s := self._wildcards.get(pattern)) and s.release(name, user)
        ]
        if gone:
            known.given_up |= set(gone)
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
                (name_state.scheduled, key)
                for key, name_state in self._names.items()
                if name_state.scheduled is not None
            ]
            heapify(self._due)


def _fill(limit: str, pattern: str, share: NameShare) -> Fill:
    """Return the use of names or addresses, whichever is nearer to its limit."""
    names = Fill(limit, pattern, len(share), share.max_names)
    addresses = Fill(limit, pattern, share.addresses, share.max_addresses, "addresses")
    return max(names, addresses, key=lambda fill: fill.share)
