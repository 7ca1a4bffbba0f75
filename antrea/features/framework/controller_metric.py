"""Declaration of a feature's metrics of the controller, in module `metrics` of its folder: `METRICS`."""

from __future__ import annotations

from typing import Literal, NamedTuple


class ControllerMetric(NamedTuple):
    """A metric that the controller keeps for a feature, under upstream's name. Source: upstream pkg/controller/metrics/prometheus.go."""

    name: str
    of: str
    """Plural of published objects, or kind of objects whose status is written."""
    kind: Literal["counter", "gauge", "histogram"]
    """counter: objects published or withdrawn, or statuses written; gauge: jobs that wait; histogram: milliseconds of a job."""
    stability: Literal["ALPHA", "STABLE"]
    help: str
