"""Effects of Egress in the controller: addresses of pools are written into the specs of Egresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.egress_address import EgressAddress
from antrea.features.framework.controller_part import ControllerPart
from antrea.outside.kube.egress_address_sink import EgressAddressSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Sink
    from antrea.features.framework.controller_part import ControllerContext


class EgressPart(ControllerPart):
    """Part of all Egresses."""

    def __init__(self, controller: ControllerContext) -> None:
        self._addresses = EgressAddressSink(controller.kube, controller.facts)

    def sinks(self) -> Mapping[type, Sink]:
        return {EgressAddress: self._addresses}


PART = EgressPart
