"""Histograms of how long the engine's jobs take."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from antrea.engine.core.workload import BOUNDS
from antrea.outside.log.metrics import histogram_samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine.core.workload import Workload
    from antrea.outside.log.metrics import Sample

DEFAULT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets of Prometheus' clients, whatever is measured."""


def workload_samples(workload: Workload, unit: float) -> Iterator[Sample]:
    """Lines of a histogram of how long jobs took, with default buckets; `unit`: how many of it are a millisecond."""
    within = dict(zip(BOUNDS, accumulate(workload.counts), strict=False))
    counts = [within[round(bound / unit, 3)] for bound in DEFAULT_BOUNDS]
    total = [sum(workload.counts)]
    return histogram_samples(DEFAULT_BOUNDS, counts + total, workload.milliseconds * unit)
