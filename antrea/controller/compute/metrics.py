"""Metrics of the controller's computing process under upstream's names; metrics without a true value are absent.

A feature declares its metrics in module `metrics` of its folder. parity: pkg/controller/metrics/prometheus.go
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from antrea.engine.core.workload import Workload
from antrea.features import FEATURES
from antrea.features.framework.controller_metric import ControllerMetric
from antrea.features.framework.plug import declared, merged
from antrea.outside.log.metrics import Metric, Sample
from antrea.outside.log.workload_metrics import workload_samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

METRICS: Final[Mapping[str, ControllerMetric]] = merged(
    "metric",
    (
        {row.name: row}
        for row in chain.from_iterable(declared(FEATURES, "metrics", ControllerMetric, "METRICS").values())
    ),
)
"""Metrics that features declare, by name."""


def controller_metrics(counted: Mapping[str, int], workloads: Mapping[str, Workload]) -> str:
    """Return the metrics of features in Prometheus' format, by name.

    `counted`: number of objects published or withdrawn, by plural, and of statuses written, by kind; `workloads`: of the jobs
    that compute published objects, by plural.
    """
    texts = []
    for name in sorted(METRICS):
        row = METRICS[name]
        metric = Metric(row.name, row.kind, row.stability, row.help)
        texts.append(metric.text(_samples(row, counted, workloads.get(row.of, Workload()))))
    return "".join(texts)


def _samples(row: ControllerMetric, counted: Mapping[str, int], workload: Workload) -> Iterable[Sample]:
    if row.kind == "counter":
        return [Sample(counted.get(row.of, 0))]
    if row.kind == "gauge":
        return [Sample(workload.waiting)]
    return workload_samples(workload, unit=1)
