"""The moment until which a run may occupy the event loop."""

from __future__ import annotations

from time import perf_counter as clock

__all__ = ["SLICE", "TimeSlice", "clock"]

STRIDE = 15
"""Steps of a microsecond each for which the clock, which takes a tenth of that, is not read."""


class TimeSlice:
    """Long runs compare the clock with `end` at every step, and yield once it has passed; those of short steps ask `over()`."""

    __slots__ = ("_unread", "end")

    def __init__(self) -> None:
        self.end: float = float("inf")
        self._unread: int = 0

    def begin(self, end: float) -> None:
        """Let runs continue until `end`, a time of `clock`."""
        self.end = end
        self._unread = 0

    def over(self) -> bool:
        """Whether `end` has passed, as of one of the last steps."""
        if self._unread:
            self._unread -= 1
            return False
        if clock() >= self.end:
            return True
        self._unread = STRIDE
        return False


SLICE = TimeSlice()
"""Shared by everything that runs in one thread: the code that drives a run sets it, and resets it after every pause."""
