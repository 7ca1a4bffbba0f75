"""Reads the metadata of workloads, and keeps those with the annotation by which requests of Pods are exported."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from antrea.apis.core import OnlyMetadata
from antrea.controller.part import ControllerPart
from antrea.features.l7_flow_export.controller import WORKLOADS, annotated
from antrea.outside.kube.resource_feed import ResourceFeed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.controller.part import ControllerContext
    from antrea.engine import Feed


class L7FlowExportPart(ControllerPart):
    """The feeds are no `watched` of the feature: no policy depends on them, and no new leader has to wait for them."""

    def __init__(self, controller: ControllerContext) -> None:
        self._kube = controller.kube

    def feeds(self) -> Mapping[str, Feed]:
        return {
            f"annotated {kind.plural}": ResourceFeed(
                self._kube, kind.path(), OnlyMetadata, fact=kind, row=partial(annotated, kind), optional=True,
                metadata_only=True,
            )
            for kind in WORKLOADS
        }  # fmt: skip


PART = L7FlowExportPart
