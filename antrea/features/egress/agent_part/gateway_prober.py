"""Prober of the gateways of VLANs, as long as this Node has Egress IPs of these VLANs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.facts.egress import EgressGateway
from antrea.features.egress.agent.gateway_reachability import READS, wanted_gateways
from antrea.outside.log import klog
from antrea.outside.neighbour.probe import who_has
from antrea.outside.neighbour.probe_failure import is_link_down, note_failed_probe

if TYPE_CHECKING:
    from antrea.engine import Facts

log = klog.logger(__name__)

LOOK_SECONDS: Final = 5.0
"""Seconds between two rounds."""
SILENT: Final = 2
"""Number of rounds of three probes without an answer before a gateway counts as silent."""


class GatewayFeed:
    """Feed of Gateway, in the network namespace of the thread that runs it."""

    def __init__(self) -> None:
        self._missed: dict[EgressGateway, int] = {}
        """Consecutive rounds without an answer; no key before the first."""

    async def run(self, facts: Facts) -> None:
        """Probe until cancelled."""
        with facts.watch(*READS) as news:
            while True:
                news.clear()
                wanted = wanted_gateways(facts)
                facts.replace(EgressGateway, [row for gateway in wanted if (row := await self.ask(gateway))])
                self._missed = {gateway: many for gateway, many in self._missed.items() if gateway in wanted}
                if not wanted:
                    await news.wait()
                await asyncio.sleep(LOOK_SECONDS)

    async def ask(self, gateway: EgressGateway) -> EgressGateway | None:
        """Return whether the gateway answers, or None as long as that is open. Errors of this Node leave it as it was."""
        mac = ""
        try:
            mac = await who_has(gateway.dev, gateway.ip)
        except OSError as error:
            # the device comes and goes with its addresses
            if not is_link_down(error):
                note_failed_probe(error)
                return self._result(gateway)
        if mac:
            self._missed[gateway] = 0
            return self._result(gateway)
        missed = self._missed[gateway] = self._missed.get(gateway, 0) + 1
        if missed == SILENT:
            log.warning("The gateway of a VLAN does not answer", dev=gateway.dev, gateway=gateway.ip)
        return self._result(gateway)

    def _result(self, gateway: EgressGateway) -> EgressGateway | None:
        missed = self._missed.get(gateway)
        if missed is None or 0 < missed < SILENT:
            return None
        return gateway if missed == 0 else msgspec.structs.replace(gateway, answers=False)
