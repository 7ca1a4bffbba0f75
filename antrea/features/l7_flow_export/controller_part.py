"""Reads the metadata of workloads, and keeps those with the annotation by which requests of Pods are exported."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from antrea.apis.core import OnlyMetadata
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_part import ControllerPart
from antrea.features.l7_flow_export.controller import WORKLOADS, annotated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.features.framework.controller_part import ControllerContext


class L7FlowExportPart(ControllerPart):
    """The watches of annotated workloads."""

    def __init__(self, _: ControllerContext) -> None:
        """Nothing of the controller is needed."""

    def watched(self) -> Iterable[Watched]:
        for kind in WORKLOADS:
            yield Watched(
                kind.path(), OnlyMetadata, kind, partial(annotated, kind), optional=True, metadata_only=True
            )


PART = L7FlowExportPart
