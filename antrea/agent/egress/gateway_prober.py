"""Asks the gateways of VLANs whether they are there, for as long as this Node has Egress IPs of these VLANs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.facts.egress import EgressGateway
from antrea.features.egress.agent.gateway_reachability import READS, wanted_gateways
from antrea.outside.log import klog
from antrea.outside.neighbour.probe import who_has

if TYPE_CHECKING:
    from antrea.engine import Facts

log = klog.logger(__name__)

LOOK_SECONDS: Final = 5.0
"""Between two rounds."""
SILENT: Final = 2
"""Rounds of three questions in which a gateway must not have answered."""


class GatewayFeed:
    """Feed of Gateway, in the network namespace of the thread that runs it."""

    def __init__(self) -> None:
        self._missed: dict[EgressGateway, int] = {}
        """Rounds in a row without an answer."""

    async def run(self, facts: Facts) -> None:
        """For ever."""
        with facts.watch(*READS) as news:
            while True:
                news.clear()
                wanted = wanted_gateways(facts)
                facts.replace(EgressGateway, [row for one in wanted if (row := await self._asked(one))])
                self._missed = {one: many for one, many in self._missed.items() if one in wanted}
                if not wanted:
                    await news.wait()
                await asyncio.sleep(LOOK_SECONDS)

    async def _asked(self, gateway: EgressGateway) -> EgressGateway | None:
        """None: the result is open."""
        mac = ""
        with contextlib.suppress(OSError):  # the device comes and goes with its addresses
            mac = await who_has(gateway.dev, gateway.ip)
        if mac:
            self._missed.pop(gateway, None)
            return gateway
        missed = self._missed[gateway] = self._missed.get(gateway, 0) + 1
        if missed < SILENT:
            return None
        if missed == SILENT:
            log.warning("The gateway of a VLAN does not answer", dev=gateway.dev, gateway=gateway.ip)
        return msgspec.structs.replace(gateway, answers=False)
