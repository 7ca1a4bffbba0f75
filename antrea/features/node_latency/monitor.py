"""The one NodeLatencyMonitor: how often other Nodes are asked, and what is too slow."""

from __future__ import annotations

from antrea.apis.annotation import LATENCY_THRESHOLD
from antrea.apis.crd.latency import NodeLatencyMonitor
from antrea.config.shape import seconds
from antrea.errors import Invalid
from antrea.facts.fact import Fact
from antrea.features.framework.admission import Watched

PATH = "/apis/crd.antrea.io/v1alpha1/nodelatencymonitors"
NAME = "default"


class LatencyMonitor(Fact, frozen=True):
    """How often other Nodes are asked; the feed of NodeLatencyMonitors writes it while there is one."""

    interval: float
    """Seconds."""
    threshold: float = 0.0
    """Seconds above which a round-trip time is worth an Event; 0: never."""


def latency_monitor(stored: NodeLatencyMonitor) -> LatencyMonitor | None:
    """Make the row; None for an object of another name. An invalid threshold is none: admission refuses it."""
    if stored.metadata.name != NAME:
        return None
    try:
        limit = threshold(stored)
    except Invalid:
        limit = 0.0
    return LatencyMonitor(float(max(stored.spec.ping_interval_seconds, 1)), limit)


def threshold(stored: NodeLatencyMonitor) -> float:
    """Return the threshold of the annotation, in seconds; 0 without one. Raises Invalid."""
    text = stored.metadata.annotations.get(LATENCY_THRESHOLD, "")
    if not text:
        return 0.0
    try:
        limit = seconds(text)
    except ValueError:
        limit = 0.0
    if limit <= 0:
        raise Invalid(
            f"metadata.annotations[{LATENCY_THRESHOLD}]", f"{text!r} is not a duration such as 5ms or 1s"
        )
    return limit


WATCHED = Watched(PATH, NodeLatencyMonitor, LatencyMonitor, latency_monitor)
