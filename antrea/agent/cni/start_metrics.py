"""How Pods started: by when their policies were known, and how long each was held for that."""

from __future__ import annotations

from collections import Counter

from antrea.outside.log.metrics import Histogram, Metric, Sample

KNOWN = ("at once", "in time", "earlier", "never")
BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 30)
"""Upper ends in seconds."""
COUNT = Metric(
    "antrea_agent_pod_start_count",
    "counter",
    "ALPHA",
    "Number of times that a Pod's interface was to be connected, by when all policies for it were known: at once, in time, before this start of the agent alone, or never.",
)
WAIT = Metric(
    "antrea_agent_pod_start_wait_seconds",
    "histogram",
    "ALPHA",
    "How long a Pod's interface was held until all policies for it were known, or until it was given up.",
)


class PodStartMetrics:
    """Counts since the agent started."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """By when the policies were known, one of KNOWN: never is the number of those that timed out."""
        self._waits = Histogram(BOUNDS)

    def note(self, known: str, seconds: float) -> None:
        """One was held so long."""
        self.counts[known] += 1
        self._waits.note(seconds)

    def text(self) -> str:
        """In Prometheus' format."""
        counts = (Sample(self.counts[known], {"known": known}) for known in KNOWN)
        return COUNT.text(counts) + WAIT.text(self._waits.samples())
