"""Answers to Pods from untrusted DNS servers, since each Pod chooses its server.

Such a server may give any address any name. So its answers open nothing: they count for rules that drop or reject, and only for
the Pod that got them.
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
"""Maximum number of addresses of one Pod; the oldest go first."""
MAX_PODS = 128
"""Maximum number of Pods with such answers; the one with the oldest last answer goes first. A Node has 110 Pods by default."""
MIN_SECONDS = 300.0
"""Minimum number of seconds that an answer is kept, so that conditions and `antctl explain` show it."""
PatternsOf = Callable[[str], Iterable[str]]
"""Function that returns the patterns of rules that drop or reject, for a name that they match."""


class OwnAnswer(msgspec.Struct):
    """Address that an untrusted server gave to a name."""

    pod: str
    """Pod (namespace/name); empty for the Node itself, or an unknown Pod."""
    server: str
    name: str
    address: str
    expires: float
    patterns: tuple[str, ...] = ()
    """Matching patterns of rules that drop or reject."""


class OwnAnswers:
    """The latest answers, for each Pod; `row` makes the row of an answer and a pattern."""

    def __init__(self, row: Callable[[str, OwnAnswer], Fact]) -> None:
        self._row = row
        self._pods: OrderedDict[str, OrderedDict[tuple[str, str], OwnAnswer]] = OrderedDict()
        self._counts: Counter[Fact] = Counter()
        self._changed: dict[Fact, None] = {}

    def __iter__(self) -> Iterator[OwnAnswer]:
        for answers in self._pods.values():
            yield from answers.values()

    def of_pod(self, pod: str) -> list[OwnAnswer]:
        """List the answers to one Pod."""
        return list(self._pods.get(pod, {}).values())

    def pods(self) -> list[str]:
        """List the Pods with such answers."""
        return sorted(self._pods)

    def changes(self) -> dict[Fact, bool]:
        """Return the changes since the last call: True for rows that exist now, False for rows that are gone."""
        changes = {row: row in self._counts for row in self._changed}
        self._changed.clear()
        return changes

    def learn(
        self, pod: str, server: str, answer: DnsAnswer, patterns: Iterable[str], now: float
    ) -> list[Fact]:
        """Add one answer. Return the rows that follow from it."""
        answers = self._pods.setdefault(pod, OrderedDict())
        self._pods.move_to_end(pod)
        matched = tuple(patterns)
        rows: list[Fact] = []
        for address, seconds in answer.addresses[:MAX_PER_POD]:
            until = now + max(MIN_SECONDS, min(seconds, MAX_TTL))
            own_answer = OwnAnswer(pod, server, answer.name, address, until, matched)
            self._count(own_answer, 1)
            if (before := answers.pop((answer.name, address), None)) is not None:
                self._count(before, -1)
            answers[answer.name, address] = own_answer
            rows += (self._row(pattern, own_answer) for pattern in matched)
        self._make_room(answers)
        return rows

    def _make_room(self, answers: OrderedDict[tuple[str, str], OwnAnswer]) -> None:
        while len(answers) > MAX_PER_POD:
            self._remove(next(iter(answers.values())))
        while len(self._pods) > MAX_PODS:
            for own_answer in list(next(iter(self._pods.values())).values()):
                self._remove(own_answer)

    def expire(self, now: float) -> None:
        """Remove expired answers."""
        for expired in [own_answer for own_answer in self if own_answer.expires <= now]:
            self._remove(expired)

    def set_patterns(self, patterns_of: PatternsOf) -> None:
        """Let the answers count for these patterns from now on."""
        for own_answer in self:
            after = tuple(patterns_of(own_answer.name))
            if after != own_answer.patterns:
                self._count(own_answer, -1)
                own_answer.patterns = after
                self._count(own_answer, 1)

    def _remove(self, own_answer: OwnAnswer) -> None:
        answers = self._pods[own_answer.pod]
        del answers[own_answer.name, own_answer.address]
        self._count(own_answer, -1)
        if not answers:
            del self._pods[own_answer.pod]

    def _count(self, own_answer: OwnAnswer, by: int) -> None:
        for pattern in own_answer.patterns:
            row = self._row(pattern, own_answer)
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
