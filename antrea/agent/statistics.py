"""Reports what policies matched and Egresses sent on this Node: looks at counters of flows, and posts to the controller what they rose by.

What was seen, and what is still to be told, is kept in a file beside the journal of ids: it outlives the agent, as the
flows and their counters do.
parity: pkg/agent/stats/collector.go
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from antrea.apis.controlplane import GROUP, VERSION
from antrea.apis.stats import TrafficStats
from antrea.errors import AntreaError, Unavailable
from antrea.features.counted import Seen, Share, summary
from antrea.openflow.flow_count import flow_count
from antrea.outside import klog
from antrea.outside.exchange import exchange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping
    from pathlib import Path

    from antrea.engine import Facts
    from antrea.features.counted import Counted
    from antrea.openflow.flow_count import FlowCount
    from antrea.outside.kube import Kube

log = klog.logger(__name__)

PATH = f"/apis/{GROUP}/{VERSION}/nodestatssummaries"
SLICE = 200
"""Flows that are looked at before others have their turn."""
MOST = 2000
"""Shares in one report, which is then well below what a server takes."""


class Dumper(Protocol):
    """What antrea.outside.ofctl_run.Ofctl does for us."""

    def lines(self, command: str, *arguments: str) -> AsyncIterator[str]: ...


class Kept(msgspec.Struct):
    """What outlives the agent."""

    flows: dict[str, Seen] = {}
    """By flow, those that have counted anything."""
    owed: list[tuple[Share, TrafficStats]] = []
    """What is still to be told."""


class Statistics:
    """Of what features of the Node `node` have `counted`; `tables` has the numbers of tables by name, `controller` is asked for at each report."""

    def __init__(
        self,
        facts: Facts,
        ofctl: Dumper,
        controller: Callable[[], Kube | None],
        counted: Collection[Counted],
        *,
        node: str,
        tables: Mapping[str, int],
        keep: Path,
    ) -> None:
        self._facts = facts
        self._ofctl = ofctl
        self._controller = controller
        self._node = node
        self._tables = [(one, tables[name]) for one in counted for name in one.tables]
        self._keep = keep
        self._flows: dict[str, Seen] | None = None
        """None: nobody has ever looked."""
        self.owed: dict[Share, TrafficStats] = {}
        """What is still to be told."""
        self._trouble = ""
        self._written: int | None = None
        """Hash of what the file has; None: this agent has not written it."""

    async def run(self, seconds: float) -> None:
        """For ever: look and report every so many seconds."""
        self.read()
        if self._flows is None:
            await self.turn()
        while True:
            await asyncio.sleep(seconds)
            await self.turn()

    async def turn(self) -> None:
        """One look and its report; what fails is logged, and tried again with the next one."""
        try:
            await self.look()
            await self.report()
        except (AntreaError, OSError) as why:
            if str(why) != self._trouble:
                log.warning("Statistics are late", err=str(why))
            self._trouble = str(why)
            # the others are gone for good: while nobody can be told, nobody says that they are back
            gone = [
                one for one in self.owed if not any(each.there(self._facts, one) for each, _ in self._tables)
            ]
            for share in gone:
                del self.owed[share]
        else:
            self._trouble = ""
        await self._write()

    async def look(self) -> None:
        """Add what flows have counted since the last look to what is owed. Raises Unavailable; then nothing is added."""
        before, now = self._flows, dict[str, Seen]()
        rose: dict[tuple[Counted, str], TrafficStats] = {}
        count = 0
        for counted, table in self._tables:
            async for line in self._ofctl.lines("dump-flows", f"table={table}"):
                if (count := count + 1) % SLICE == 0:
                    await asyncio.sleep(0)
                if (found := flow_count(line)) and found.packets:
                    whose = counted.owner(self._facts, found)
                    if by := _seen(found, whose, counted, before, now):
                        rose[counted, whose] = rose.get((counted, whose), TrafficStats()) + by
        self._flows = now
        for (counted, whose), by in rose.items():
            for share in counted.shares(self._facts, whose):
                self.owed[share] = self.owed.get(share, TrafficStats()) + by

    async def report(self) -> None:
        """Tell the controller all that is owed. Raises Refused, Unavailable; what was told by then is not owed any more."""
        while self.owed:
            controller = self._controller()
            if controller is None:
                raise Unavailable("connection to antrea-controller")
            some = dict(islice(self.owed.items(), MOST))
            body: dict[str, Any] = msgspec.to_builtins(summary(self._node, some))
            said = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "NodeStatsSummary", **body}
            await controller.create(PATH, said)
            for share in some:
                del self.owed[share]

    def read(self) -> None:
        """Go on where the last agent stopped; a file that cannot be read is as good as none."""
        try:
            kept = msgspec.msgpack.decode(self._keep.read_bytes(), type=Kept)
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as why:
            log.warning("What was counted is not known", path=self._keep, err=str(why))
            return
        self._flows, self.owed = kept.flows, dict(kept.owed)

    async def _write(self) -> None:
        if self._flows is None:
            return
        data = msgspec.msgpack.encode(Kept(self._flows, list(self.owed.items())))
        if hash(data) == self._written:
            return
        try:
            await asyncio.to_thread(exchange, self._keep, (data,))
        except OSError as why:
            log.warning("What was counted is not kept", path=self._keep, err=str(why))
        else:
            self._written = hash(data)


def _seen(
    found: FlowCount, whose: str, counted: Counted, before: Mapping[str, Seen] | None, now: dict[str, Seen]
) -> TrafficStats | None:
    """By what a flow rose; None: by nothing that anybody is known to count."""
    if before is None:
        # it may have been told already, by somebody who left no word
        now[found.flow] = Seen(found.packets, found.bytes, whose)
        return None
    last = before.get(found.flow)
    if whose:
        now[found.flow] = Seen(found.packets, found.bytes, whose)
        by = counted.increase(found, whose, last)
        return by if by.packets else None
    if last:
        # whose it is may become known yet
        now[found.flow] = last
    return None
