"""Annotations of NodeLatencyMonitors."""

from __future__ import annotations

from antrea.apis import annotation as names
from antrea.features.framework.annotation import is_duration
from antrea.features.framework.idle_request import AnnotationRule

MONITOR = "NodeLatencyMonitor.crd.antrea.io"
ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(
        names.LATENCY_THRESHOLD, (MONITOR,), "NodeLatencyMonitor", "a duration such as 5ms", is_duration,
    ),
)  # fmt: skip
