"""Metric of the controller for Egresses."""

from __future__ import annotations

from antrea.features.framework.controller_metric import ControllerMetric

METRICS = (
    ControllerMetric(
        "antrea_controller_eg_status_updates",
        "Egress",
        "counter",
        "ALPHA",
        "The total number of actual status updates performed for Antrea Egress Custom Resources",
    ),
)
