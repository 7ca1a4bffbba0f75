"""The moment until which a run may occupy the event loop."""

from __future__ import annotations

from time import perf_counter as clock

__all__ = ["SLICE", "TimeSlice", "clock"]


class TimeSlice:
    """Long runs compare the clock with `end` at every step, and yield once it has passed."""

    __slots__ = ("end",)

    def __init__(self) -> None:
        self.end: float = float("inf")


SLICE = TimeSlice()
"""Shared by everything that runs in one thread: the code that drives a run sets it, and resets it after every pause."""
