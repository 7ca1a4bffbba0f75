"""The checks behind /livez, /readyz and /agentinfo: an empty text is success, any other is the error.

parity: pkg/agent/apiserver/apiserver.go (livez has "ovs"); ours also has the CNI socket,
and our readyz what a start waits for, OVSDB, and feeds that have not synced for too long.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.agent.api.readiness import Readiness
    from antrea.agent.switch.recovery import SwitchRecovery
    from antrea.engine import Engine
    from antrea.outside.http.handlers import Check
    from antrea.outside.ovsdb.client import Ovsdb

log = klog.logger(__name__)

FEED_SECONDS = 5.0
"""Between looks at the feeds; how long one may be silent is the engine's `Pace.patience`."""


class Health:
    """Before `follow`, only `ready` can be asked: what is to be connected is not there yet."""

    def __init__(self, ready: Readiness, controller: Check, cni: Check) -> None:
        """`controller` checks the connection to antrea-controller, `cni` the CNI socket."""
        self._start = ready
        self._db: Ovsdb | None = None
        self._switch: SwitchRecovery | None = None
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

    def follow(self, db: Ovsdb, switch: SwitchRecovery) -> None:
        """Ask these from now on."""
        self._db, self._switch = db, switch

    async def run(self, engine: Engine) -> None:
        """Look at the feeds for ever; a change is logged once."""
        while True:
            late = engine.unsynced()
            if late and late != self._late:
                log.warning("Feeds have not synced", kinds=late)
            elif self._late and not late:
                log.info("All feeds have synced")
            self._late = late
            await asyncio.sleep(FEED_SECONDS)

    def _flows(self) -> str:
        replaying = self._start.is_set() and self._switch is not None and not self._switch.works.is_set()
        return "flows are being replayed" if replaying else ""

    def _feeds(self) -> str:
        return f"nothing heard from kube-apiserver or OVSDB of {', '.join(self._late)}" if self._late else ""
