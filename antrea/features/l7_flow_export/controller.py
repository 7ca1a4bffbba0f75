"""An Event for workloads with the annotation that is for Pods, where it has no effect.

Agents read that of Pods and Namespaces; Pods get the annotations of a template, not those of the workload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antrea.engine import Unit
from antrea.features.framework.controller_feature import ControllerFeature
from antrea.features.framework.event import RecordEvent
from antrea.features.l7_flow_export.workload import WORKLOADS, no_effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.engine import Facts
    from antrea.features.l7_flow_export.workload import AnnotatedWorkload

GATE: Final = "L7FlowExporter"


def useless_annotation(_: Facts, workload: AnnotatedWorkload) -> Iterator[RecordEvent]:
    """Yield an Event with the place where it has an effect."""
    message = no_effect(type(workload))
    yield RecordEvent(
        f"{workload.kind}/{workload.key}", (workload.uid, workload.value), workload.api_version, workload.kind, workload.name, workload.uid,
        "L7ExportInvalid", message, warning=True, namespace=workload.namespace,
    )  # fmt: skip


FEATURES = (
    ControllerFeature(
        name=GATE,
        gate=GATE,
        units=tuple(Unit(kind, useless_annotation) for kind in WORKLOADS),
    ),
)
