"""Effects of ExternalNode in the controller: the ExternalEntities of its interfaces are written by the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.generated_entity import GeneratedEntity
from antrea.features.framework.controller_part import ControllerPart
from antrea.outside.kube.external_entity_sink import ExternalEntitySink
from antrea.outside.kube.leader_only_sink import LeaderOnlySink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Sink
    from antrea.features.framework.controller_part import ControllerContext


class ExternalNodePart(ControllerPart):
    """Part of all ExternalNodes."""

    def __init__(self, controller: ControllerContext) -> None:
        self._entities = LeaderOnlySink(ExternalEntitySink(controller.kube), controller.lead)

    def sinks(self) -> Mapping[type, Sink]:
        return {GeneratedEntity: self._entities}


PART = ExternalNodePart
