"""Findings of `antctl doctor`: the engine that reads requests for flow records is down; annotations without effect.

The controller reports such annotations by Events while gate L7FlowExporter is on, and watches none of these kinds while it is off.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from antrea.features.framework.doctor import ConditionCheck, MetadataCheck, repair_engine
from antrea.features.l7_flow_export.workload import WORKLOADS, annotated, no_effect

if TYPE_CHECKING:
    from antrea.apis.core import OnlyMetadata
    from antrea.features.l7_flow_export.workload import AnnotatedWorkload


def annotation_fault(kind: type[AnnotatedWorkload], stored: OnlyMetadata) -> str:
    """Return why the annotation of a workload has no effect; empty without the annotation."""
    return no_effect(kind) if annotated(kind, stored) else ""


CONDITIONS = (
    ConditionCheck("l7-engine", "L7FlowEngineMissing", "warning", repair_engine("antrea-l7-flow-engine")),
)
METADATA_CHECKS = tuple(
    MetadataCheck("l7-export", kind.path(), kind.kind, kind.plural, partial(annotation_fault, kind))
    for kind in WORKLOADS
)
