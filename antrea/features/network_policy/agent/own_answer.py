"""Answers that Pods got from DNS servers that are not trusted, because each Pod chooses its server.

Such a server may give any address any name. So its answers open nothing: they count for rules that drop or reject, and for the
Pod alone that got them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from antrea.features.network_policy.agent.fqdn_cache import MAX_TTL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.facts.fact import Fact
    from antrea.features.network_policy.agent.dns_answer import DnsAnswer

MAX_PER_POD = 256
"""Addresses of one Pod; those that came first go first."""
MAX_PODS = 128
"""Pods with such answers; the one that got its last answer first goes first. A Node has 110 Pods by default."""
MIN_SECONDS = 300.0
"""Time that an answer is kept at least, so that conditions and `antctl explain` show it."""
PatternsOf = Callable[[str], Iterable[str]]
"""Patterns of rules that drop or reject, by a name that they match."""


class OwnAnswer(msgspec.Struct):
    """One address that a server which is not trusted gave to a name."""

    pod: str
    """namespace/name of the Pod; empty: the Node itself, or a Pod that is not known."""
    server: str
    name: str
    address: str
    expires: float
    patterns: tuple[str, ...] = ()
    """Those of rules that drop or reject."""


class OwnAnswers:
    """The latest of them, for each Pod; `row` is what follows from one and a pattern."""

    def __init__(self, row: Callable[[str, OwnAnswer], Fact]) -> None:
        self._row = row
        self._pods: OrderedDict[str, OrderedDict[tuple[str, str], OwnAnswer]] = OrderedDict()
        self._counts: Counter[Fact] = Counter()
        self._changed: dict[Fact, None] = {}

    def __iter__(self) -> Iterator[OwnAnswer]:
        for answers in self._pods.values():
            yield from answers.values()

    def of_pod(self, pod: str) -> list[OwnAnswer]:
        """Answers to one Pod."""
        return list(self._pods.get(pod, {}).values())

    def pods(self) -> list[str]:
        """The Pods with such answers."""
        return sorted(self._pods)

    def changes(self) -> dict[Fact, bool]:
        """What has changed since the last call: rows that there are now, and rows that are gone."""
        found = {row: row in self._counts for row in self._changed}
        self._changed.clear()
        return found

    def learn(
        self, pod: str, server: str, answer: DnsAnswer, patterns: Iterable[str], now: float
    ) -> list[Fact]:
        """Take in one answer. Return the rows that follow from it."""
        answers = self._pods.setdefault(pod, OrderedDict())
        self._pods.move_to_end(pod)
        own = tuple(patterns)
        rows: list[Fact] = []
        for address, seconds in answer.addresses[:MAX_PER_POD]:
            until = now + max(MIN_SECONDS, min(seconds, MAX_TTL))
            found = OwnAnswer(pod, server, answer.name, address, until, own)
            self._count(found, 1)
            if (before := answers.pop((answer.name, address), None)) is not None:
                self._count(before, -1)
            answers[answer.name, address] = found
            rows += (self._row(pattern, found) for pattern in own)
        self._make_room(answers)
        return rows

    def _make_room(self, answers: OrderedDict[tuple[str, str], OwnAnswer]) -> None:
        while len(answers) > MAX_PER_POD:
            self._remove(next(iter(answers.values())))
        while len(self._pods) > MAX_PODS:
            for one in list(next(iter(self._pods.values())).values()):
                self._remove(one)

    def expire(self, now: float) -> None:
        """Remove what is kept no longer."""
        for one in [one for one in self if one.expires <= now]:
            self._remove(one)

    def set_patterns(self, patterns_of: PatternsOf) -> None:
        """Have the answers count for these patterns from now on."""
        for one in self:
            after = tuple(patterns_of(one.name))
            if after != one.patterns:
                self._count(one, -1)
                one.patterns = after
                self._count(one, 1)

    def _remove(self, found: OwnAnswer) -> None:
        answers = self._pods[found.pod]
        del answers[found.name, found.address]
        self._count(found, -1)
        if not answers:
            del self._pods[found.pod]

    def _count(self, found: OwnAnswer, by: int) -> None:
        for pattern in found.patterns:
            row = self._row(pattern, found)
            before = self._counts[row]
            self._counts[row] = before + by
            if not self._counts[row]:
                del self._counts[row]
            if before and before + by:
                continue
            # what comes and goes again between two calls of `changes` is none
            if row in self._changed:
                del self._changed[row]
            else:
                self._changed[row] = None
