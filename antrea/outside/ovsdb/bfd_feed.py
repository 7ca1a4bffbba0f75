"""The feed of BFD: states of the sessions with other Nodes in OVSDB, for failure detection by gossip.

Source: RFC 5880, 6.8.6 and 6.8.18; ovs-vswitchd.conf.db(5), bfd_status.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import msgspec

from antrea.host.ovs_port import BFD, NODE_KEY, TYPE_KEY
from antrea.outside.gossip.suspicion import Timing
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.engine import Facts
    from antrea.outside.ovsdb.client import Ovsdb

STEADY_SECONDS = 2.0
"""A session is up once it has been so long: OVS sends once a second until both ends are up, so that one that has just
come up may miss its first packets and go down once."""
ASIDE_SECONDS = Timing().switch
"""After which a Node whose switch is down is set aside: it is up again when the session is, not before."""
DOUBT_SECONDS = 4.0
"""How long a session may take to come up while packets arrive: three packets at one a second, and one lost."""
SIGNALED = "Neighbor Signaled Session Down"


class BfdStatus(msgspec.Struct, frozen=True):
    """Status from the column bfd_status: states are down, init and up."""

    state: str
    remote: str = "down"
    """The last diagnostic of the other end, since this one was up."""
    diagnostic: str = ""

    @property
    def was_received(self) -> bool:
        """Whether a packet came since the session went down, or was what took it down."""
        return self.state != "down" or self.remote in ("init", "up") or self.diagnostic == SIGNALED


class BfdSession:
    """Unknown before it is up once. Then silence counts as down at once, and a session that receives packets again is not down.

    A few packets lost in a row take a session down for seconds, because both ends begin anew at one packet a second. So
    while it comes up again the state is unknown, unless that takes too long (packets go one way only), or the other end had
    been silent for as long as it takes to set it aside.
    """

    def __init__(self) -> None:
        self.word: bool | None = None
        """Whether the switch is up; None: unknown."""
        self.due: float | None = None
        """When to look again though nothing has changed."""
        self._known = False
        self._up = float("inf")
        """Since when the session has been up."""
        self._fell = 0.0
        """When the word became False."""
        self._doubt = 0.0
        """When it became None, or the session was last up."""

    def update(self, status: BfdStatus, now: float) -> None:
        """Set `word` and `due`; `now` in seconds, of any steady clock."""
        self.due = None
        if status.state == "up":
            self._up, self._doubt = min(self._up, now), now
            if now >= self._up + STEADY_SECONDS:
                self.word, self._known = True, True
                return
            self.due = self._up + STEADY_SECONDS
        else:
            self._up = float("inf")
        if self._known:
            self._weigh(status, now)

    def _weigh(self, status: BfdStatus, now: float) -> None:
        """The word of a session that was up before, and is not, or not for long."""
        if not status.was_received:
            if self.word is not False:
                self.word, self._fell = False, now
        elif self.word or (self.word is False and now < self._fell + ASIDE_SECONDS):
            self.word, self._doubt = None, now
        if self.word is None and status.state != "up":
            if now < self._doubt + DOUBT_SECONDS:
                self.due = self._doubt + DOUBT_SECONDS
            else:
                self.word, self._fell = False, float("-inf")


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
