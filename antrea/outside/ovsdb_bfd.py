"""The feed of BFD: what OVSDB says of the sessions with other Nodes, as facts `BfdSession`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antrea.facts.member import BfdSession
from antrea.host.ovs_port import BFD, NODE_KEY, TYPE_KEY
from antrea.outside import klog

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.outside.ovsdb import Ovsdb

log = klog.logger(__name__)

STEADY_SECONDS = 2.0
"""A session is up once it has been so long: OVS sends once a second until both ends are up, so that one that has just
come up may miss its first packets and go down once."""


class BfdFeed:
    """A session counts once it is up: before that nothing can be said of the other end. Down counts at once."""

    def __init__(self, db: Ovsdb) -> None:
        self._db = db
        self._rising: dict[str, asyncio.TimerHandle] = {}
        """Sessions that are up, but not yet long enough."""

    async def run(self, facts: Facts) -> None:
        """List, mark the kind synced, then follow. What follows is urgent: a failover waits for it."""
        changes = self._db.changes()
        try:
            self._say(facts)
            facts.synced(BfdSession)
            async for touched in changes:
                if any(table == "Interface" and self._concerns(uuid) for table, uuid in touched):
                    self._say(facts)
        finally:
            for timer in self._rising.values():
                timer.cancel()

    def _concerns(self, uuid: str) -> bool:
        row = self._db.rows("Interface").get(uuid)
        return row is None or row["name"].startswith(f"{BFD}-")

    def _say(self, facts: Facts) -> None:
        now = self._sessions()
        known = {row.node: row for row in facts.all(BfdSession)}
        for node in (known.keys() | self._rising.keys()) - now.keys():
            self._fall(node)
            facts.drop(BfdSession, node, urgent=True)
        for node, row in now.items():
            before = known.get(node)
            if not row.up:
                self._fall(node)
                if before is not None and before.up:
                    log.info("BFD down", node=node, diagnostic=row.diagnostic)
                    facts.put(row, urgent=True)
            elif (before is None or not before.up) and node not in self._rising:
                loop = asyncio.get_running_loop()
                self._rising[node] = loop.call_later(STEADY_SECONDS, self._risen, facts, row)

    def _risen(self, facts: Facts, row: BfdSession) -> None:
        del self._rising[row.node]
        log.info("BFD up", node=row.node)
        facts.put(row, urgent=True)

    def _fall(self, node: str) -> None:
        if timer := self._rising.pop(node, None):
            timer.cancel()

    def _sessions(self) -> dict[str, BfdSession]:
        found = {}
        for port in self._db.rows("Port").values():
            ids = port["external_ids"]
            if ids.get(TYPE_KEY) == BFD and (row := self._db.row("Interface", port["name"])):
                status, node = row["bfd_status"], ids.get(NODE_KEY, "")
                up = status.get("state") == "up"
                found[node] = BfdSession(node, up, "" if up else status.get("diagnostic", ""))
        return found
