"""Annotations of IPPools."""

from __future__ import annotations

from antrea.apis import annotation as names
from antrea.features.framework.annotation import NAMESPACE, POD
from antrea.features.framework.idle_request import AnnotationRule

NO_IPAM = "addresses come from the Node's Pod CIDRs"
ANNOTATIONS: tuple[AnnotationRule, ...] = (
    AnnotationRule(names.IP_POOLS, (POD, NAMESPACE), "AntreaIPAM", instead=NO_IPAM),
    AnnotationRule(names.POD_IPS, (POD,), "AntreaIPAM", instead=NO_IPAM),
)  # fmt: skip
