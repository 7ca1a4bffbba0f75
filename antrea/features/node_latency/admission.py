"""Validation of a NodeLatencyMonitor: the annotation of its threshold is a duration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.crd.latency import NodeLatencyMonitor
from antrea.features.framework.admission import Webhook
from antrea.features.node_latency.monitor import threshold

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.features.framework.admission import Review, Steps


def validate_latency_monitor(_: Facts, review: Review[NodeLatencyMonitor]) -> Steps:
    """Validate a monitor. Raises Invalid."""
    yield from ()
    threshold(review.new)


WEBHOOKS = (
    Webhook(
        "nodelatencymonitorvalidator.antrea.io", "/validate/nodelatencymonitor", ("CREATE", "UPDATE"), "crd.antrea.io",
        ("v1alpha1",), "nodelatencymonitors", "Cluster", NodeLatencyMonitor,
        "annotation antrea.io/latency-threshold is a duration such as 5ms", validate=validate_latency_monitor,
        failure="Ignore",
    ),
)  # fmt: skip
