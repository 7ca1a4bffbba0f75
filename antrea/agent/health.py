"""The checks behind /livez, /readyz and /agentinfo: an empty text is health, all else says what is wrong.

parity: pkg/agent/apiserver/apiserver.go (livez has "ovs"); ours says more than upstream's: whether CNI plugins are heard,
and our readyz what a start waits for, OVSDB, and feeds that have been silent for too long.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.outside import klog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.agent.readiness import Readiness
    from antrea.agent.switch_care import SwitchCare
    from antrea.engine import Engine
    from antrea.outside.ovsdb import Ovsdb
    from antrea.outside.serving import Check

log = klog.logger(__name__)

FEED_SECONDS = 5.0
"""Between looks at the feeds; how long one may be silent is the engine's `Pace.patience`."""


class Health:
    """Before `follow`, only `ready` can be asked: what is to be connected is not there yet."""

    def __init__(self, ready: Readiness, controller: Check, cni: Check) -> None:
        """`controller` says what is wrong with the connection to antrea-controller, `cni` with answers to CNI plugins."""
        self._start = ready
        self._db: Ovsdb | None = None
        self._switch: SwitchCare | None = None
        self._late: list[str] = []
        self.live: Mapping[str, Check] = {"ovs": self.switch, "cni": cni}
        self.ready: Mapping[str, Check] = {
            "network": lambda: self._start.waiting,
            "flows": self._flows,
            "ovsdb": self.database,
            "feeds": self._feeds,
        }
        self.conditions: Mapping[str, Check] = {
            "OVSDBConnectionUp": self.database,
            "OpenflowConnectionUp": self.switch,
            "ControllerConnectionUp": controller,
        }

    def switch(self) -> str:
        """ovs-vswitchd runs and has the bridge."""
        up = self._switch is None or self._switch.connected
        return "" if up else "disconnected from ovs-vswitchd"

    def database(self) -> str:
        """OVSDB takes transactions; without it no Pod can come or go, and userspace OVS forwards nothing."""
        up = self._db is None or self._db.connected
        return "" if up else "disconnected from OVSDB"

    def follow(self, db: Ovsdb, switch: SwitchCare) -> None:
        """Ask these from now on."""
        self._db, self._switch = db, switch

    async def run(self, engine: Engine) -> None:
        """Look at the feeds for ever; a change is logged once."""
        while True:
            late = engine.unsynced()
            if late != self._late:
                log.warning("Feeds that are silent", kinds=late)
            self._late = late
            await asyncio.sleep(FEED_SECONDS)

    def _flows(self) -> str:
        replaying = self._start.is_set() and self._switch is not None and not self._switch.works.is_set()
        return "flows are being replayed" if replaying else ""

    def _feeds(self) -> str:
        return f"nothing heard from kube-apiserver or OVSDB of {', '.join(self._late)}" if self._late else ""
