"""Metrics of Pod starts: when their policies were known, and how long each Pod was held for that."""

from __future__ import annotations

from collections import Counter

from antrea.outside.log.metrics import Histogram, Metric, Sample

RESULTS = ("immediate", "waited", "cached", "timeout")
BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 30)
"""Upper bounds in seconds."""
COUNT = Metric(
    "antrea_agent_pod_start_count",
    "counter",
    "ALPHA",
    "Number of times that a Pod's interface was to be connected, by whether its policies were known: immediate, waited (known in time), cached (known from the cached controller state alone), or timeout.",
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
        """Number of starts by result, one of RESULTS: `timeout` is the number of Pods that were held in vain."""
        self._waits = Histogram(BOUNDS)

    def note(self, result: str, seconds: float) -> None:
        """Count a start that was held for so many seconds."""
        self.counts[result] += 1
        self._waits.note(seconds)

    def text(self) -> str:
        """Render the metrics in Prometheus' format."""
        counts = (Sample(self.counts[result], {"result": result}) for result in RESULTS)
        return COUNT.text(counts) + WAIT.text(self._waits.samples())
