"""Annotations of Nodes for BGP."""

from __future__ import annotations

from antrea.apis import annotation as names
from antrea.features.bgp_policy.gate import GATE
from antrea.features.bgp_policy.router_id import valid_router_id
from antrea.features.framework.idle_request import AnnotationRule

ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(
        names.BGP_ROUTER_ID,
        ("Node",),
        GATE,
        "an IPv4 address other than 0.0.0.0",
        lambda text: bool(valid_router_id(text)),
    ),
)
