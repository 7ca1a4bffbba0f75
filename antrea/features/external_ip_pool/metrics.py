"""Metric of the controller for pools."""

from __future__ import annotations

from antrea.features.framework.controller_metric import ControllerMetric

METRICS = (
    ControllerMetric(
        "antrea_controller_eip_status_updates",
        "ExternalIPPool",
        "counter",
        "ALPHA",
        "The total number of actual status updates performed for Antrea ExternalIPPool Custom Resources",
    ),
)
