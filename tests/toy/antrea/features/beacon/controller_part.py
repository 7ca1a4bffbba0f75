"""Effects of Beacons in the controller: a metric, and a ConfigMap that only the leader writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.features.beacon.beacon import BeaconAddress

from antrea.features.framework.controller_part import ControllerPart
from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from antrea.features.framework.controller_part import ControllerContext

BEACONS = Metric("antrea_controller_beacon_count", "gauge", "ALPHA", "Number of Beacons.")


class BeaconPart(ControllerPart):
    """Part of all Beacons."""

    def __init__(self, controller: ControllerContext) -> None:
        self._controller = controller

    async def run(self) -> None:
        """Fails while there is a Beacon named broken."""
        facts = self._controller.facts
        with facts.watch(BeaconAddress) as changed:
            while True:
                changed.clear()
                if facts.get(BeaconAddress, "broken"):
                    raise RecursionError("a Beacon is broken")
                await changed.wait()

    async def run_while_leading(self) -> None:
        path = f"/api/v1/namespaces/{self._controller.namespace}/configmaps/beacons"
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beacons"}}
        await self._controller.kube.create_named(path, head)

    def metrics(self) -> str:
        return BEACONS.text([Sample(len(self._controller.facts.all(BeaconAddress)))])


PART = BeaconPart
