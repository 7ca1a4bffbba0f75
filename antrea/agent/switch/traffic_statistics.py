"""Reports of what policies matched and Egresses sent on this Node: the increase of flow counters, posted to the controller.

Counters last seen and increases not yet reported are kept in a file beside the ID journal: they outlive the agent, as the flows
and their counters do.
parity: pkg/agent/stats/collector.go
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from antrea.agent.switch.traffic_account import Account, TrafficAccountStore
from antrea.apis.annotation import STATS_ACCOUNT, STATS_EPOCH, STATS_SERIAL
from antrea.apis.controlplane import GROUP, VERSION
from antrea.apis.controlplane_report import NodeStatsSummary
from antrea.apis.stats import TrafficStats
from antrea.decoding import decode_msgpack
from antrea.errors import AntreaError, Invalid, Unavailable
from antrea.features.framework.traffic import SeenCounters, summary
from antrea.openflow.flow_count import flow_count
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.disk.state_file import Damaged, read_bytes, sealed, set_aside, unsealed
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from antrea.engine import Facts
    from antrea.features.framework.traffic import Counted, Share
    from antrea.openflow.flow_count import FlowCount
    from antrea.outside.kube.client import Kube

    Counters = Callable[[], Awaitable[Iterable[FlowCount]]]

log = klog.logger(__name__)

FORMAT = b"antrea policy counters 2\n"
PATH = f"/apis/{GROUP}/{VERSION}/nodestatssummaries"
SLICE = 200
"""Number of flows that are processed before other tasks may run."""
MAX_SHARES = 2000
"""Maximum number of shares in one report, which keeps it well below the size that a server accepts."""


class Dumper(Protocol):
    """The method of antrea.outside.vswitch.ofctl.Ofctl that is needed here."""

    def lines(self, command: str, *arguments: str) -> AsyncIterator[str]: ...


class Kept(msgspec.Struct):
    """State that outlives the agent."""

    flows: dict[str, SeenCounters] = {}
    """Counters by flow, without flows that have counted nothing."""
    account: Account = msgspec.field(default_factory=Account)
    """Account of the reported part of these counters."""


class TrafficStatistics:
    """Reporter of traffic that features of the Node `node` have `counted`.

    `tables` has the numbers of tables by name, `counters` reads those of nftables, `controller` is called at each report.
    """

    def __init__(
        self,
        facts: Facts,
        ofctl: Dumper,
        controller: Callable[[], Kube | None],
        counted: Collection[Counted],
        *,
        node: str,
        tables: Mapping[str, int],
        counters: Counters,
        keep: Path,
    ) -> None:
        self._facts = facts
        self._ofctl = ofctl
        self._controller = controller
        self._node = node
        self._counted = tuple(counted)
        self._tables = [(feature, tables[name]) for feature in counted for name in feature.tables]
        self._counters = counters
        self._keep = keep
        self._flows: dict[str, SeenCounters] | None = None
        """None if the counters were never read."""
        self.account = TrafficAccountStore(Account())
        self._reported_to: Kube | None = None
        """The connection by which a report was answered."""
        self._trouble = ""
        self._written: int | None = None
        """Hash of the file's content; None if this agent has not written it."""

    async def run(self, seconds: float) -> None:
        """Collect and report every `seconds` seconds, until cancelled."""
        self.read()
        if self._flows is None:
            await self.turn()
        while True:
            await asyncio.sleep(seconds)
            await self.turn()

    async def turn(self) -> None:
        """Collect and report once; failures are logged, and retried the next time."""
        try:
            await self.collect()
            await self.report()
        except (AntreaError, OSError) as error:
            if str(error) != self._trouble:
                log.warning("Failed to report traffic statistics", err=str(error))
            self._trouble = str(error)
            # gone for good: while nobody can be told, nobody says that they are back
            for share in self._absent(self.account.owed):
                self.account.forget(share)
        else:
            self._trouble = ""
            self.account.note_absent(self._absent(self.account.totals))
        await self._write()

    def _absent(self, shares: Iterable[Share]) -> set[Share]:
        return {
            share for share in shares if not any(each.there(self._facts, share) for each in self._counted)
        }

    async def collect(self) -> None:
        """Add what flows have counted since the last time to what is owed. Raises Unavailable; then nothing is added."""
        before, now = self._flows, dict[str, SeenCounters]()
        rose: dict[tuple[Counted, str], TrafficStats] = {}
        count = 0
        async for counted, flow in self._each():
            if (count := count + 1) % SLICE == 0:
                await asyncio.sleep(0)
            if flow.packets:
                whose = counted.owner(self._facts, flow)
                if by := _increase(flow, whose, counted, before, now):
                    rose[counted, whose] = rose.get((counted, whose), TrafficStats()) + by
        self._flows = now
        for (counted, whose), by in rose.items():
            for share in counted.shares(self._facts, whose):
                self.account.add(share, by)

    async def _each(self) -> AsyncIterator[tuple[Counted, FlowCount]]:
        for counted, table in self._tables:
            async for line in self._ofctl.lines("dump-flows", f"table={table}"):
                if count := flow_count(line):
                    yield counted, count
        for counted in self._counted:
            for count in await self._counters() if counted.counters else ():
                yield counted, count

    async def report(self) -> None:
        """Report every increase to the controller, or everything after a change of its epoch. Raises Refused, Unavailable."""
        controller = self._controller()
        if controller is None and self.account.owed:
            raise Unavailable("no connection to antrea-controller")
        while controller is not None:
            rows = self.account.begin(MAX_SHARES)
            if not rows and controller is self._reported_to:
                return
            # kept first: an agent that ends before it hears of the answer says the same again
            await self._write()
            said: dict[str, Any] = msgspec.to_builtins(summary(self._node, rows))
            said["metadata"]["annotations"] = {
                STATS_EPOCH: self.account.epoch,
                STATS_ACCOUNT: self.account.name,
                STATS_SERIAL: str(self.account.serial),
            }
            whole = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "NodeStatsSummary", **said}
            answer = await controller.ask(PATH, whole, NodeStatsSummary)
            self.account.answered(answer.metadata.annotations.get(STATS_EPOCH, ""))
            self._reported_to = controller

    def read(self) -> None:
        """Continue where the last agent stopped; a file that cannot be read counts as none."""
        try:
            kept = decode_msgpack(unsealed(FORMAT, read_bytes(self._keep)), Kept, str(self._keep))
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("Failed to read saved traffic counters", path=self._keep, err=str(error))
            return
        except (Damaged, Invalid) as error:
            log.error(
                "The file of traffic counters is damaged; traffic that was not reported is lost",
                error=error, path=self._keep, aside=set_aside(self._keep),
            )  # fmt: skip
            return
        self._flows, self.account = kept.flows, TrafficAccountStore(kept.account)

    async def _write(self) -> None:
        if self._flows is None:
            return
        data = msgspec.msgpack.encode(Kept(self._flows, self.account.kept))
        if hash(data) == self._written:
            return
        try:
            await asyncio.to_thread(exchange, self._keep, sealed(FORMAT, (data,)))
        except OSError as error:
            log.warning("Failed to save traffic counters", path=self._keep, err=str(error))
        else:
            self._written = hash(data)


def _increase(
    flow: FlowCount,
    whose: str,
    counted: Counted,
    before: Mapping[str, SeenCounters] | None,
    now: dict[str, SeenCounters],
) -> TrafficStats | None:
    """Return the increase of a flow's counters; None if it is zero or its owner is unknown."""
    if before is None:
        # it may have been told already, by somebody who left no word
        now[flow.flow] = SeenCounters(flow.packets, flow.bytes, whose)
        return None
    last = before.get(flow.flow)
    if whose:
        now[flow.flow] = SeenCounters(flow.packets, flow.bytes, whose)
        by = counted.increase(flow, whose, last)
        return by if by.packets else None
    if last:
        # whose it is may become known yet
        now[flow.flow] = last
    return None
