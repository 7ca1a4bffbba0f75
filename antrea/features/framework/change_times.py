"""Times of the last changes of some kinds of rows, for Events and log lines with the duration of a reaction."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from antrea.engine import Facts
    from antrea.facts.fact import Fact

GONE: Final = 1000
"""Number of dropped rows whose times are kept: the reaction to a deletion follows within seconds."""


class ChangeTimes:
    """Times of changes by kind and key; bounded by the existing rows and the last GONE dropped ones."""

    def __init__(
        self,
        facts: Facts,
        kinds: Iterable[type[Fact]],
        *,
        clock: Callable[[], float],
        gone: int = GONE,
    ) -> None:
        self._facts = facts
        self._clock = clock
        self._most_gone = gone
        self._rows: dict[type[Fact], dict[str, Fact]] = defaultdict(dict)
        self._times: dict[type[Fact], dict[str, float]] = defaultdict(dict)
        self._gone: deque[tuple[type[Fact], str, float]] = deque()
        for kind in kinds:
            facts.observe(kind, self._note)

    @property
    def times(self) -> Mapping[type[Fact], Mapping[str, float]]:
        """Times by kind and key, in seconds of the clock."""
        return self._times

    def _note(self, kind: type[Fact], key: str) -> None:
        row = self._facts.get(kind, key)
        if row == self._rows[kind].get(key):
            return
        now = self._times[kind][key] = self._clock()
        if row is not None:
            self._rows[kind][key] = row
            return
        self._rows[kind].pop(key, None)
        self._gone.append((kind, key, now))
        while len(self._gone) > self._most_gone:
            old, dropped, then = self._gone.popleft()
            if self._times[old].get(dropped) == then:  # else it came back, or was dropped again
                del self._times[old][dropped]
