"""The feed of BFD: what OVSDB says of the sessions with other Nodes, for those who judge who lives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.host.ovs_port import BFD, NODE_KEY, TYPE_KEY
from antrea.outside import klog

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.engine import Facts
    from antrea.outside.ovsdb import Ovsdb

log = klog.logger(__name__)

STEADY_SECONDS = 2.0
"""A session is up once it has been so long: OVS sends once a second until both ends are up, so that one that has just
come up may miss its first packets and go down once."""


class BfdFeed:
    """A session counts once it is up: before that nothing can be said of the other end. Down counts at once."""

    def __init__(self, db: Ovsdb, tell: Callable[[str, bool | None], None]) -> None:
        """`tell` is given the name of a Node and whether its switch is up; None: it is watched no longer."""
        self._db = db
        self._tell = tell
        self._told: dict[str, bool] = {}
        self._rising: dict[str, asyncio.TimerHandle] = {}
        """Sessions that are up, but not yet long enough."""

    async def run(self, _facts: Facts) -> None:
        """List, then follow, until cancelled."""
        changes = self._db.changes()
        try:
            self._look()
            async for touched in changes:
                if any(table == "Interface" and self._concerns(uuid) for table, uuid in touched):
                    self._look()
        finally:
            for timer in self._rising.values():
                timer.cancel()

    def _concerns(self, uuid: str) -> bool:
        row = self._db.rows("Interface").get(uuid)
        return row is None or row["name"].startswith(f"{BFD}-")

    def _look(self) -> None:
        now = self._sessions()
        for node in (self._told.keys() | self._rising.keys()) - now.keys():
            self._fall(node)
            if self._told.pop(node, None) is not None:
                self._tell(node, None)
        for node, (state, diagnostic) in now.items():
            if state != "up":
                self._fall(node)
                if self._told.get(node):
                    log.info("BFD down", node=node, diagnostic=diagnostic)
                    self._say(node, up=False)
            elif not self._told.get(node) and node not in self._rising:
                loop = asyncio.get_running_loop()
                self._rising[node] = loop.call_later(STEADY_SECONDS, self._risen, node)

    def _risen(self, node: str) -> None:
        del self._rising[node]
        log.info("BFD up", node=node)
        self._say(node, up=True)

    def _say(self, node: str, *, up: bool) -> None:
        self._told[node] = up
        self._tell(node, up)

    def _fall(self, node: str) -> None:
        if timer := self._rising.pop(node, None):
            timer.cancel()

    def _sessions(self) -> dict[str, tuple[str, str]]:
        """State and diagnostic by Node; without those that a new ovs-vswitchd has not begun, or somebody turned off."""
        found = {}
        for port in self._db.rows("Port").values():
            ids = port["external_ids"]
            if ids.get(TYPE_KEY) == BFD and (row := self._db.row("Interface", port["name"])):
                status = row["bfd_status"]
                if (state := status.get("state", "")) not in ("", "admin_down"):
                    found[ids.get(NODE_KEY, "")] = (state, status.get("diagnostic", ""))
        return found
