"""Effects of Beacons: a feed, an act that writes an Event, a metric, a path of the API, a file of support bundles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antrea.features.beacon.agent import Heartbeat, Lit
from antrea.features.beacon.beacon import BeaconAddress

from antrea.apis.core import ObjectReference
from antrea.features.framework.agent_part import Part
from antrea.outside.log.metrics import Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.engine import Act, Facts, Feed
    from antrea.features.framework.agent_part import AgentContext, Connected, Handler, Route
    from antrea.outside.http.handlers import Check

LIT = Metric("antrea_agent_beacon_lit_count", "counter", "ALPHA", "Number of Beacons that were lit.")


class HeartbeatFeed:
    """Feed of Heartbeat."""

    async def run(self, facts: Facts) -> None:
        facts.put(Heartbeat(1))
        facts.synced(Heartbeat)
        await asyncio.Event().wait()


class BeaconPart(Part):
    """Part of one Node."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._lit = 0

    def feeds(self, connected: Connected) -> Mapping[str, Feed]:
        return {"heartbeat": HeartbeatFeed()}

    async def run(self) -> None:
        """Fails while there is a Beacon named broken."""
        facts = self._agent.facts
        with facts.watch(BeaconAddress) as changed:
            while True:
                changed.clear()
                if facts.get(BeaconAddress, "broken"):
                    raise RecursionError("a Beacon is broken")
                await changed.wait()

    def acts(self) -> Mapping[type[Act], Handler]:
        return {Lit: self._light}

    def conditions(self) -> Mapping[str, Check]:
        return {"BeaconsUnlit": self._unlit}

    def _unlit(self) -> str:
        waiting = len(self._agent.facts.all(BeaconAddress)) - self._lit
        return f"{waiting} Beacons have no flows" if waiting > 0 else ""

    def metrics(self) -> str:
        return LIT.text([Sample(self._lit)])

    def routes(self) -> Mapping[str, Route]:
        return {"/beacons": lambda _: self._agent.facts.all(BeaconAddress)}

    def bundle(self) -> Mapping[str, Any]:
        return {"beacons": self._agent.facts.all(BeaconAddress)}

    async def _light(self, act: Lit) -> None:
        self._lit += 1
        about = ObjectReference(api_version="crd.antrea.io/v1alpha1", kind="Beacon", name=act.key)
        self._agent.record("BeaconLit", f"{act.ip} leads to Node {self._agent.node}", about=about)


PART = BeaconPart
