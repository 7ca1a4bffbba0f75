"""Annotations of requests in flow records."""

from __future__ import annotations

from antrea.apis import annotation as names
from antrea.features.framework.annotation import NAMESPACE, POD, among
from antrea.features.framework.idle_request import AnnotationRule

ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(
        names.L7_EXPORT, (POD, NAMESPACE), "L7FlowExporter", "ingress, egress or both",
        among("ingress", "egress", "both", lower=True), reported="L7ExportInvalid", instead="no requests are exported",
    ),
)  # fmt: skip
