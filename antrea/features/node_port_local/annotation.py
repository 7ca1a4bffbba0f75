"""Annotations of ports of the Node for Pods."""

from __future__ import annotations

from antrea.apis import annotation as names
from antrea.features.framework.annotation import SERVICE
from antrea.features.framework.idle_request import AnnotationRule

ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(
        names.PORT_LOCAL_ENABLED, (SERVICE,), "NodePortLocal", "true or false", lambda text: text in ("true", "false"),
        needs_gate=lambda text: text == "true", instead="its Pods get no ports of their Nodes",
    ),
)  # fmt: skip
