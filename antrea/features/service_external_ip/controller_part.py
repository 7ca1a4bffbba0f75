"""Effects of ServiceExternalIP in the controller: addresses of pools are written into the statuses of Services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.apis.service_address import ServiceAddress
from antrea.features.framework.controller_part import ControllerPart
from antrea.outside.kube.service_address_sink import ServiceAddressSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Sink
    from antrea.features.framework.controller_part import ControllerContext


class ServiceExternalIPPart(ControllerPart):
    """Part of all Services."""

    def __init__(self, controller: ControllerContext) -> None:
        self._addresses = ServiceAddressSink(controller.kube, controller.facts)

    def sinks(self) -> Mapping[type, Sink]:
        return {ServiceAddress: self._addresses}


PART = ServiceExternalIPPart
