"""Effects of Traceflows: their packets are made and injected, and what the switch reports of them goes into their status."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.apis.crd.traceflow import NodeResult
from antrea.errors import Invalid, Refused, Unavailable
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.features.framework.agent_part import Part
from antrea.features.traceflow.agent import InjectPacket, PrepareTrace, SeenTrace
from antrea.features.traceflow.agent_part.destination import destination_of
from antrea.features.traceflow.agent_part.result_writer import ResultWriter
from antrea.features.traceflow.deciding_flow import FlowKey, detailed
from antrea.features.traceflow.observation import TracedPacket, captured, is_sender, observations
from antrea.features.traceflow.preparation import PreparedTrace, prepared
from antrea.features.traceflow.trace import RunningTrace
from antrea.openflow.fields import TRACE_INJECTED_REG_MARK
from antrea.openflow.fields import PacketIn as Category
from antrea.openflow.flow import Flow
from antrea.openflow.frame import frame
from antrea.openflow.packet import TCP, UDP, packet
from antrea.openflow.packet_out import PacketOut
from antrea.outside.kube.clock import epoch
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from antrea.engine import Act
    from antrea.facts.fact import Fact
    from antrea.features.framework.agent_part import AgentContext, Handler
    from antrea.openflow.packet_in import PacketIn

log = klog.logger(__name__)

DELAY, LOCAL_DELAY = 2.0, 0.1
"""Seconds until a packet is injected: for flows of other Nodes, and of this one (parity: injectPacketDelay)."""
MAX_RESULTS: Final = 8
"""Maximum number of results of one Node about one injected packet."""


class TraceflowPart(Part):
    """Part of one Node."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent, self._facts = agent, agent.facts
        self._results = ResultWriter(agent.kube, agent.node)
        self._result_counts: Counter[str] = Counter()
        """Results by UID."""
        agent.facts.observe(RunningTrace, self._changed)

    def acts(self) -> Mapping[type[Act], Handler]:
        return {PrepareTrace: self._prepare, InjectPacket: self._inject}

    def packet_ins(self) -> Mapping[Category, Callable[[PacketIn], None]]:
        return {Category.TRACEFLOW: self._handle}

    def _changed(self, _: type[Fact], name: str) -> None:
        """Drop what was kept of a removed trace."""
        trace = self._facts.get(RunningTrace, name)
        for row in (self._facts.get(PreparedTrace, name), self._facts.get(SeenTrace, name)):
            if row is not None and (trace is None or trace.uid != row.uid):
                self._facts.drop(type(row), name)
        running = {row.uid for row in self._facts.all(RunningTrace)}
        self._result_counts = Counter(
            {uid: number for uid, number in self._result_counts.items() if uid in running}
        )

    def _running(self, name: str, uid: str) -> RunningTrace | None:
        trace = self._facts.get(RunningTrace, name)
        return trace if trace is not None and trace.uid == uid else None

    async def _prepare(self, act: PrepareTrace) -> None:
        trace = self._running(act.name, str(act.key))
        if trace is not None:
            self._agent.begin(self._prepared(trace), f"Traceflow {trace.name}")

    async def _prepared(self, trace: RunningTrace) -> None:
        """Find the destination, and let the flows follow from it."""
        try:
            target = await destination_of(self._facts, self._agent.kube, trace)
            pods = self._facts.by(PodInterface, "pod", trace.pod)
            if not pods:
                raise Invalid("spec.source.pod", f"Pod {trace.pod} is gone")
            row = prepared(self._facts, trace, pods[0], target)
        except Invalid as error:
            await self._results.fail(trace, error.why)
        except (Refused, Unavailable) as error:
            await self._results.fail(trace, f"failed to get the destination: {error}")
        else:
            if self._running(trace.name, trace.uid):
                self._facts.put(row)

    async def _inject(self, act: InjectPacket) -> None:
        self._agent.begin(self._injected(act.prepared), f"packet of Traceflow {act.prepared.name}")

    async def _injected(self, row: PreparedTrace) -> None:
        """Inject after the time that flows take; a trace that is over by then, or that this Node began before, has no packet."""
        await asyncio.sleep(LOCAL_DELAY if row.nearby else DELAY)
        trace = self._running(row.name, row.uid)
        if trace is None or self._agent.node in trace.reported:
            return
        gateway = self._facts.get(OvsPort, self._agent.config.host_gateway)
        if self._facts.get(PodInterface, row.interface) is None or gateway is None:
            await self._results.fail(trace, f"Pod {trace.pod} is gone")
            return
        headers = row.headers
        port = headers.source_port or random.randrange(1024, 1 << 16)  # noqa: S311 (a port, not a secret)
        headers = msgspec.structs.replace(
            headers,
            dscp=trace.tag,
            destination_mac=headers.destination_mac or gateway.mac,
            source_port=port if headers.protocol in (TCP, UDP) else 0,
        )
        log.v(2).info("Injecting the packet of a Traceflow", traceflow=row.name, tag=trace.tag)
        self._agent.send(PacketOut(frame(headers), row.ofport, (TRACE_INJECTED_REG_MARK,)))

    def _handle(self, packet_in: PacketIn) -> None:
        """One packet of a trace; of live traffic only the first counts."""
        try:
            read = packet(packet_in.frame)
        except Invalid as error:
            log.v(2).info("Failed to parse a traced packet", err=str(error))
            return
        trace = next((row for row in self._facts.all(RunningTrace) if row.tag == read.dscp), None)
        if trace is None or trace.ipv6 != read.ipv6:
            log.v(2).info("A traced packet belongs to no Traceflow", tag=read.dscp)
            return
        if not self._counts(trace):
            return
        traced = TracedPacket(trace, packet_in, read)
        result = NodeResult(
            node=self._agent.node,
            timestamp=epoch(),
            observations=detailed(self._facts, traced, observations(self._facts, traced), self._flows),
        )
        tells = trace.receiver_only or trace.dropped_only or is_sender(self._facts, traced)
        taken = captured(read) if trace.spec.live_traffic and tells else None
        self._agent.begin(self._results.add(trace, result, taken), f"result of Traceflow {trace.name}")

    def _flows(self, keep: Callable[[FlowKey], bool]) -> Iterator[Flow]:
        """Return the wanted flows of the switch, by their keys."""
        return self._agent.engine().standing_of(Flow, keep)

    def _counts(self, trace: RunningTrace) -> bool:
        """Whether one more result of this Node is wanted."""
        self._result_counts[trace.uid] += 1
        if not trace.spec.live_traffic:
            return self._result_counts[trace.uid] <= MAX_RESULTS
        if self._result_counts[trace.uid] > 1:
            return False
        self._facts.put(SeenTrace(trace.name, trace.uid), urgent=True)
        return True


PART = TraceflowPart
