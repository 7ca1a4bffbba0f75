"""Annotations of Services with external IPs."""

from __future__ import annotations

from antrea.apis import annotation as names
from antrea.features.framework.annotation import FAILBACK_VALUES, FAILBACKS, SERVICE, among, is_boolean
from antrea.features.framework.idle_request import AnnotationRule

GATE = "ServiceExternalIP"
ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(names.EXTERNAL_IP_POOL, (SERVICE,), GATE, instead="the Service gets no external IP"),
    AnnotationRule(names.ALLOW_SHARED_IP, (SERVICE,), GATE, "true or false", is_boolean),
    AnnotationRule(names.PREFERRED_FOR_SERVICE, (SERVICE,), GATE),
    AnnotationRule(names.FAILBACK_FOR_SERVICE, (SERVICE,), GATE, FAILBACKS, among(*FAILBACK_VALUES)),
)  # fmt: skip
