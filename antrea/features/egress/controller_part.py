"""Effects of Egress in the controller: addresses of pools in the specs of Egresses, and the quarantine of port blocks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antrea.apis.egress_address import EgressAddress
from antrea.facts.egress import FreeBlock
from antrea.features.egress.controller.port_block import QuarantineBlock
from antrea.features.egress.port_block import QUARANTINE_SECONDS
from antrea.features.framework.controller_part import ControllerPart
from antrea.outside.kube.egress_address_sink import EgressAddressSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Act, Sink
    from antrea.features.framework.controller_part import ControllerContext, Handler

FREE_SECONDS: Final = 10.0
"""Seconds for which a block is known as free, in which it is written as such."""


class EgressPart(ControllerPart):
    """Part of all Egresses."""

    def __init__(self, controller: ControllerContext) -> None:
        self._facts = controller.facts
        self._addresses = EgressAddressSink(controller.kube, controller.facts)

    def sinks(self) -> Mapping[type, Sink]:
        return {EgressAddress: self._addresses}

    def acts(self) -> Mapping[type[Act], Handler]:
        return {QuarantineBlock: self._quarantine}

    async def _quarantine(self, act: QuarantineBlock) -> None:
        """Free the block later; a new leader begins the time anew."""
        block = FreeBlock(act.egress, act.pod, act.first)
        loop = asyncio.get_running_loop()
        loop.call_later(QUARANTINE_SECONDS, self._facts.put, block)
        loop.call_later(QUARANTINE_SECONDS + FREE_SECONDS, self._facts.drop, FreeBlock, block.key)


PART = EgressPart
