"""The feed of BFD: states of the sessions with other Nodes in OVSDB, for failure detection by gossip."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from antrea.host.ovs_port import BFD, NODE_KEY, TYPE_KEY
from antrea.outside.log import klog
from antrea.outside.ovsdb.bfd_session import BfdSession, BfdStatus

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.outside.ovsdb.client import Ovsdb

log = klog.logger(__name__)

WORDS = {True: "up", False: "down", None: "coming up again"}


class ReportSession(Protocol):
    """A function that takes the state of the BFD session with a Node."""

    def __call__(self, node: str, up: bool | None, /, *, unsure: bool = False) -> None:
        """Whether this Node's switch is up; None: unknown (`unsure`), or it is watched no longer."""


class BfdFeed:
    """Reports the state of each session when it changes."""

    def __init__(self, db: Ovsdb, report: ReportSession) -> None:
        """`report` is called with each change."""
        self._db = db
        self._report = report
        self._sessions: dict[str, BfdSession] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, _facts: Facts) -> None:
        """List, then follow, until cancelled."""
        changes = self._db.changes()
        try:
            self._read_sessions()
            async for touched in changes:
                if any(table == "Interface" and self._concerns(uuid) for table, uuid in touched):
                    self._read_sessions()
        finally:
            if self._timer:
                self._timer.cancel()

    def _concerns(self, uuid: str) -> bool:
        row = self._db.rows("Interface").get(uuid)
        return row is None or row["name"].startswith(f"{BFD}-")

    def _read_sessions(self) -> None:
        loop = asyncio.get_running_loop()
        now = self._statuses()
        for node in self._sessions.keys() - now.keys():
            if self._sessions.pop(node).word is not None:
                self._report(node, None)
        for node, status in now.items():
            session = self._sessions.setdefault(node, BfdSession())
            before = session.word
            session.update(status, loop.time())
            if session.word != before:
                log.info(f"BFD {WORDS[session.word]}", node=node, diagnostic=status.diagnostic)
                self._report(node, session.word, unsure=session.word is None)
        if self._timer:
            self._timer.cancel()
        due = min(
            (session.due for session in self._sessions.values() if session.due is not None), default=None
        )
        self._timer = None if due is None else loop.call_at(due, self._read_sessions)

    def _statuses(self) -> dict[str, BfdStatus]:
        """Return statuses by Node; without those that a new ovs-vswitchd has not begun, or that were turned off."""
        statuses = {}
        for port in self._db.rows("Port").values():
            ids = port["external_ids"]
            if ids.get(TYPE_KEY) == BFD and (row := self._db.row("Interface", port["name"])):
                said = row["bfd_status"]
                if (state := said.get("state", "")) not in ("", "admin_down"):
                    remote = said.get("remote_state", "down")
                    statuses[ids.get(NODE_KEY, "")] = BfdStatus(state, remote, said.get("diagnostic", ""))
        return statuses
