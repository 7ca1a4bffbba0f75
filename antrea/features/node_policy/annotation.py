"""Annotations of Nodes that policies protect."""

from __future__ import annotations

from antrea.apis import annotation as names
from antrea.features.framework.annotation import NODE, are_ports
from antrea.features.framework.idle_request import AnnotationRule

ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(names.KEEP_SSH, (NODE,), "NodeNetworkPolicy", "true, or ports separated by commas", are_ports),
)  # fmt: skip
