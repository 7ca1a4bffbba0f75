"""Order numbers: keys in order have numbers in order, and a newcomer moves as few others as possible."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

from antrea.errors import Unavailable

LOW, HIGH = 1, 65535
"""OpenFlow priorities, unless the pool is given narrower bounds."""
STRIDE = 16
"""Numbers left free beyond the first and the last key, so that keys that come in order do not use up the gaps."""


class Ranks:
    """One pool. Keys must be comparable with each other: tuples of numbers and strings."""

    def __init__(self) -> None:
        self.low, self.high = LOW, HIGH
        self.numbers: dict[Any, int] = {}
        self._keys: list[Any] = []

    def number(self, key: Any) -> tuple[int, list[Any]]:
        """The number of `key`, new or known, and the keys whose numbers moved to make room. Raises Unavailable if full."""
        if (known := self.numbers.get(key)) is not None:
            return known, []
        at = bisect_left(self._keys, key)
        moved: list[Any] = []
        number = self._between(at)
        if number is None:
            number, moved = self._make_room(at)
        self.numbers[key] = number
        insort(self._keys, key)
        return number, moved

    def free(self, key: Any) -> None:
        del self.numbers[key]
        del self._keys[bisect_left(self._keys, key)]

    def _between(self, at: int) -> int | None:
        """A free number for a key that comes to stand at index `at`, in the middle of its gap; None if there is no gap."""
        left = self.numbers[self._keys[at - 1]] if at > 0 else self.low - 1
        right = self.numbers[self._keys[at]] if at < len(self._keys) else self.high + 1
        gap = right - left
        if gap < 2:
            return None
        if at == len(self._keys) and at > 0:
            return left + min(gap // 2, STRIDE)
        if at == 0 and self._keys:
            return right - min(gap // 2, STRIDE)
        return left + gap // 2

    def _make_room(self, at: int) -> tuple[int, list[Any]]:
        """Push the shorter run of neighbours by one, towards the nearest gap on either side."""
        down, up = self._run_down(at), self._run_up(at)
        if down is None and up is None:
            raise Unavailable(f"a free order number between {self.low} and {self.high}")
        if up is None or (down is not None and at - down <= up - at):
            moved, step = self._keys[down:at], -1
            number = self.numbers[self._keys[at - 1]]
        else:
            moved, step = self._keys[at:up], 1
            number = self.numbers[self._keys[at]]
        for key in moved:
            self.numbers[key] += step
        return number, moved

    def _run_down(self, at: int) -> int | None:
        """Index where the run of neighbours below `at` begins that can move down by one."""
        for start in range(at - 1, -1, -1):
            below = self.numbers[self._keys[start - 1]] if start > 0 else self.low - 1
            if self.numbers[self._keys[start]] - below > 1:
                return start
        return None

    def _run_up(self, at: int) -> int | None:
        """Index after the run of neighbours from `at` on that can move up by one."""
        for end in range(at + 1, len(self._keys) + 1):
            above = self.numbers[self._keys[end]] if end < len(self._keys) else self.high + 1
            if above - self.numbers[self._keys[end - 1]] > 1:
                return end
        return None
