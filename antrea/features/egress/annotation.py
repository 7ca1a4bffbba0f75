"""Annotations of Egresses and of Nodes that hold their addresses."""

from __future__ import annotations

from antrea.apis import annotation as names
from antrea.features.framework.annotation import FAILBACK_VALUES, FAILBACKS, NODE, among, is_count
from antrea.features.framework.idle_request import AnnotationRule

EGRESS = "Egress.crd.antrea.io"
ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(names.PREFERRED_NODES, (EGRESS,), "Egress"),
    AnnotationRule(names.FAILBACK, (EGRESS,), "Egress", FAILBACKS, among(*FAILBACK_VALUES)),
    AnnotationRule(names.LOST_CONNECTIONS, (EGRESS,), "Egress", "continue or reset", among("continue", "reset", "")),
    AnnotationRule(names.SURVIVE, (EGRESS,), "Egress", "ports, sync or none", among("ports", "sync", "none", "")),
    AnnotationRule(names.MAX_EGRESS_IPS, (NODE,), "Egress", "a number from 0 to 255", is_count),
)  # fmt: skip
