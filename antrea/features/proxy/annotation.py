"""Annotations of Services that AntreaProxy serves."""

from __future__ import annotations

from antrea.apis import annotation as names
from antrea.features.framework.annotation import SERVICE, among, is_boolean
from antrea.features.framework.idle_request import AnnotationRule

ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(
        names.LOAD_BALANCER_MODE, (SERVICE,), "LoadBalancerModeDSR", "nat or dsr", among("nat", "dsr", "", lower=True),
        needs_gate=among("dsr", lower=True), instead="connections are translated, as with nat",
    ),
    AnnotationRule(names.CONSISTENT_CHOICE, (SERVICE,), "AntreaProxy", "true or false", is_boolean),
)  # fmt: skip
