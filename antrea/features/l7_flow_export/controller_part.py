"""Watches of the metadata of workloads, of which those with the annotation for the export of requests are kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from antrea.apis.core import OnlyMetadata
from antrea.features.framework.admission import Watched
from antrea.features.framework.controller_part import ControllerPart
from antrea.features.l7_flow_export.workload import WORKLOADS, annotated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.features.framework.controller_part import ControllerContext


class L7FlowExportPart(ControllerPart):
    """The watches of annotated workloads."""

    def __init__(self, _: ControllerContext) -> None:
        """Take no service of the controller."""

    def watched(self) -> Iterable[Watched]:
        for kind in WORKLOADS:
            yield Watched(
                kind.path(), OnlyMetadata, kind, partial(annotated, kind), optional=True, metadata_only=True
            )


PART = L7FlowExportPart
