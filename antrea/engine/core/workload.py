"""How long jobs take, for metrics."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0,
)  # fmt: skip
"""Upper ends in milliseconds: the default buckets of Prometheus' clients, which are 0.005 to 10, for milliseconds and for seconds."""


class Workload:
    """Runs of jobs since the start, by how long they took without pauses for the event loop, and how many wait."""

    __slots__ = ("counts", "milliseconds", "waiting")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS) + 1)
        """Runs that took at most as long as each of BOUNDS, but longer than the one before; the last took longer than all."""
        self.milliseconds: float = 0.0
        self.waiting: int = 0

    def note(self, seconds: float) -> None:
        """One more run."""
        took = seconds * 1000
        self.milliseconds += took
        self.counts[bisect_left(BOUNDS, took)] += 1

    def add(self, other: Workload) -> None:
        """Count the runs of another one, too."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.milliseconds += other.milliseconds
